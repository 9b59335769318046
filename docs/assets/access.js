// What the theme lacks for people who use a keyboard or a screen reader.
const repair = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const part of document.querySelectorAll(".md-nav .md-nav[aria-labelledby]")) {
    const name = document.getElementById(part.getAttribute("aria-labelledby"))?.textContent.trim();
    part.removeAttribute("aria-labelledby");
    part.setAttribute("aria-label", `Pages below ${name}`);
  }
  for (const part of document.querySelectorAll(".md-nav--secondary .md-nav")) {  // landmarks, two of them of one name
    part.removeAttribute("aria-label");
    part.setAttribute("role", "none");
  }
  document.querySelectorAll(".md-code__nav").forEach((part, at) => part.setAttribute("aria-label", `Code ${at + 1}`));
  // The theme takes it from code that needs no scrolling, and gives it back late when the window becomes narrow.
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code"))
    if (box.tabIndex !== 0) box.tabIndex = 0;
};
new MutationObserver(repair).observe(document.body, {childList: true, subtree: true, attributeFilter: ["tabindex"]});
repair();
