"""``limpet completion``: commands, options and their choices for the completion of a shell."""

from __future__ import annotations

from typing import Literal, get_origin

from limpet.cli.commands import all_functions, first_of, function_of
from limpet.cli.config import as_typed, known_options
from limpet.cli.console import print_json
from limpet.cli.help import choices_of

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell, json: bool = False) -> int:
    """Print the completion of a shell: commands, subcommands, options, and the words that options take.

    Bash: ``source <(limpet completion bash)`` in ~/.bashrc. Zsh: the same with zsh in ~/.zshrc, after compinit. Fish:
    ``limpet completion fish > ~/.config/fish/completions/limpet.fish``.

    Args:
        shell: bash, zsh or fish.
        json: Print one JSON document with the script.

    Examples:
        limpet completion bash
    """
    script = SCRIPTS[shell]()
    if json:
        print_json({"shell": shell, "script": script})
    else:
        print(script)
    return 0


def options_of(command: str) -> dict[str, tuple[str, ...]]:
    """Return the options of a command as people write them, with the words that each takes, if these are few."""
    found: dict[str, tuple[str, ...]] = {}
    for name, hint in known_options(function_of(command)).items():
        mapping = get_origin(hint) is dict
        found[f"{as_typed(name)}{'.' if mapping else ''}"] = () if mapping else choices_of(hint)
    return {**found, "--config": (), "--help": ()}


def words_after(path: str) -> list[str]:
    """Return the words that may follow a command that is typed so far, without options.

    >>> words_after("evaluate"), "search" in words_after("gallery")
    (['chain', 'combine', 'picture', 'protocols'], True)
    """
    depth = len(path.split())
    known = (command.split() for command in all_functions())
    return sorted({words[depth] for words in known if len(words) > depth and " ".join(words[:depth]) == path})


def _beginnings() -> list[str]:
    """Return all beginnings of commands, and commands."""
    return sorted({" ".join(words[:end]) for words in map(str.split, all_functions()) for end in range(len(words) + 1)})


def _offers() -> dict[str, list[str]]:
    """Return what to offer by what was typed: a command or its beginning, and an option of few words after it."""
    found: dict[str, list[str]] = {}
    for typed in _beginnings():
        options = options_of(typed) if typed in all_functions() else {"--help": ()}
        first = options.get(f"--{first_of(typed)}", ())
        found[typed] = [*words_after(typed), *first, *options]
        found |= {f"{typed} {option}": list(choices) for option, choices in options.items() if choices}
    return found


def _bash() -> str:
    return "\n".join(
        [
            "_limpet() {",
            '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
            '  local typed="" words="" place longer',
            "  for ((place = 1; place < COMP_CWORD; place++)); do",
            '    longer="${typed:+$typed }${COMP_WORDS[place]}"',
            f'    case "|{"|".join(_beginnings())}|" in *"|$longer|"*) typed="$longer" ;; *) break ;; esac',
            "  done",
            '  case "$before" in --*) _limpet_words "$typed $before" ;; esac',
            '  [ -n "$words" ] || _limpet_words "$typed"',
            '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
            '  case "${COMPREPLY[*]}" in *.) compopt -o nospace 2> /dev/null ;; esac',
            '  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))',
            "}",
            '_limpet_words() { case "$1" in',
            *(f'  "{typed}") words="{" ".join(words)}" ;;' for typed, words in _offers().items()),
            "esac; }",
            "complete -o filenames -F _limpet limpet",
        ]
    )


def _zsh() -> str:
    return "\n".join(
        [
            "_limpet() {",
            '  local before="${words[CURRENT-1]}" typed="" place longer',
            "  local -a offered",
            "  for ((place = 2; place < CURRENT; place++)); do",
            '    longer="${typed:+$typed }${words[place]}"',
            f"    [[ '|{'|'.join(_beginnings())}|' == *\"|$longer|\"* ]] || break",
            '    typed="$longer"',
            "  done",
            '  [[ $before != --* ]] || _limpet_offered "$typed $before"',
            '  (( $#offered )) || _limpet_offered "$typed"',
            "  compadd -S '' -- ${(M)offered:#*.}",
            "  compadd -- ${offered:#*.} || (( compstate[nmatches] )) || _files",
            "}",
            '_limpet_offered() { case "$1" in',
            *(f'  "{typed}") offered=({" ".join(words)}) ;;' for typed, words in _offers().items()),
            "esac; }",
            "compdef _limpet limpet",
        ]
    )


def _fish() -> str:
    return "\n".join(
        [
            "function __limpet_complete",
            "  set -l tokens (commandline -opc)",
            "  set -l word (commandline -ct)",
            "  set -l typed ''",
            "  for one in $tokens[2..]",
            '    set -l longer (string trim -- "$typed $one")',
            f"    contains -- $longer {' '.join(map(repr, _beginnings()))}; or break",
            "    set typed $longer",
            "  end",
            "  set -l offered",
            "  string match -q -- '--*' $tokens[-1]; and set offered (__limpet_offered \"$typed $tokens[-1]\")",
            '  set -q offered[1]; or set offered (__limpet_offered "$typed")',
            "  set offered (string match -r -- '^'(string escape --style=regex -- \"$word\")'.*' $offered)",
            "  set -q offered[1]; and printf '%s\\n' $offered; or __fish_complete_path $word",
            "end",
            "function __limpet_offered",
            "  switch $argv[1]",
            *(f"    case '{typed}'\n      printf '%s\\n' {' '.join(words)}" for typed, words in _offers().items()),
            "  end",
            "end",
            "complete -c limpet -f -a '(__limpet_complete)'",
        ]
    )


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""What writes the completion, by shell."""
