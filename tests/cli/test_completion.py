"""What shells complete: asked of the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from limpet.cli import COMMANDS, main
from limpet.cli.commands import all_functions
from limpet.cli.completion import SCRIPTS, options_of, words_after

OFFERED = {
    "tra": ["train"],
    "gallery sea": ["search"],
    "gallery search --appr": ["--approximate"],
    "gallery search --gallery live --appr": ["--approximate"],
    "evaluate c": ["chain", "combine"],
    "embed ": ["images", "stored", "texts", "--help"],
    "embed images --part v": ["validation"],
    "evaluate --gate ": ["interval", "point"],
    "evaluate chain --old-b": ["--old-baseline"],
    "evaluate chain --protocol-o": ["--protocol-options."],
    "evaluate --json --gate p": ["point"],
    "completion f": ["fish"],
}
"""By what was typed after `limpet`, the last word unfinished."""

BASH = """
source "$1"; shift
for typed; do
  read -ra COMP_WORDS <<< "$typed"; [[ "$typed" != *' ' ]] || COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _limpet; echo "${COMPREPLY[@]}"
done
"""

ZSH = r"""
zmodload zsh/zpty
script=$1 told=$1.told; shift; : > $told
cat > $script.setup <<EOS
PROMPT= RPROMPT= PROMPT_EOL_MARK=
autoload -Uz compinit && compinit -u -D
source ${(q)script}
compadd() {
  [[ \${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]] || { builtin compadd "\$@"; return }
  local -a added; builtin compadd -O added "\$@"; hits+=(\$added)
  builtin compadd "\$@"
}
tell() { typeset -ga hits=(); zle complete-word; print -r -- "\$hits" >> ${(q)told}; BUFFER= }
zle -N tell
bindkey '^I' tell
EOS
zpty shell zsh -f -i
zpty -w shell "source ${(q)script}.setup"
for typed; do zpty -n -w shell $typed$'\t'; done
zpty -w shell exit
while zpty -r shell line; do :; done
cat $told
"""

FISH = """
source $argv[1]
for typed in $argv[2..]; echo (complete -C $typed); end
"""

ASK = {"bash": ["-c", BASH, "bash"], "zsh": ["-f", "-c", ZSH, "zsh"], "fish": ["--no-config", "-c", FISH]}
"""By shell: how it is called to tell, in a line each, what it offers for what was typed."""

Ask = Callable[[str, Sequence[str]], list[list[str]]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    folder = tmp_path_factory.mktemp("completion")

    def asked(shell: str, typed: Sequence[str]) -> list[list[str]]:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        script = folder / shell
        script.write_text(SCRIPTS[shell]())
        words = [shell, *ASK[shell], str(script), *(f"limpet {one}" for one in typed)]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
        return [line.split() for line in done.stdout.splitlines()]

    return asked


@pytest.mark.parametrize("shell", SCRIPTS)
def test_shells_offer_commands_options_and_the_words_of_options(shell: str, ask: Ask) -> None:
    assert dict(zip(OFFERED, ask(shell, list(OFFERED)), strict=True)) == OFFERED


@pytest.mark.parametrize("shell", SCRIPTS)
def test_shells_offer_files_where_a_value_is_free(shell: str, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "embedded.npz").touch()
    ((offered,),) = ask(shell, [f"evaluate --old {tmp_path}/emb"])
    assert offered in (f"{tmp_path}/embedded.npz", "embedded.npz")


def test_every_command_and_option_is_in_every_script() -> None:
    assert {command.split()[0] for command in all_functions()} == set(COMMANDS)
    for shell, write in SCRIPTS.items():
        text = write()
        for command in all_functions():
            for option in options_of(command):
                assert f"{option} " in text or f"{option}\n" in text or f'{option}"' in text or f"{option})" in text, (
                    shell, command, option,
                )  # fmt: skip
    assert words_after("")[0] == "adapt"


@pytest.mark.parametrize("shell", [shell for shell in SCRIPTS if shutil.which(shell)])
def test_shells_can_read_their_scripts(shell: str, tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_text(SCRIPTS[shell]())
    assert subprocess.run([shell, "-n", str(path)], capture_output=True, check=False).stderr == b""


def test_the_command_prints_it_and_refuses_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert "complete -o filenames -F _limpet limpet" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
