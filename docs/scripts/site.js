// What the theme leaves out for those who use a keyboard or a screen reader. Run anew for every page that is opened.
const complete = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  // Wide tables and long lines of code scroll: a key must reach them.
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) part.tabIndex = 0;
};
document.addEventListener("DOMContentLoaded", complete);
