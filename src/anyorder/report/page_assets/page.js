// The report's own script: the theme button, the contents list, explained words, and the player,
// which is made once the page is painted so that many traces do not hold it up.

(() => {
  "use strict";
  const root = document.documentElement;

  // ---- light and dark: the reader's system, until the button is pressed
  const button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  name();

  // ---- where the reader is
  const links = new Map([...document.querySelectorAll(".contents a")]
    .map((link) => [link.hash.slice(1), link]));
  const sections = [...document.querySelectorAll("main > section")];
  let waiting = false;
  const mark = () => {
    waiting = false;
    const line = window.innerHeight * 0.3;
    const above = sections.filter((section) => section.getBoundingClientRect().top < line);
    const here = (above.at(-1) ?? sections[0]).id;
    links.forEach((link, id) => {
      const is = id === here;
      if (is === link.classList.contains("is-here")) return;
      link.classList.toggle("is-here", is);
      if (is) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  };
  window.addEventListener("scroll", () => {
    if (!waiting) { waiting = true; requestAnimationFrame(mark); }
  }, { passive: true });
  mark();

  // ---- explained words: on pointing, on focus, on a tap
  const tip = document.getElementById("tip");
  const show = (term) => {
    const [title, ...rest] = term.dataset.means.split(": ");
    const head = document.createElement("strong");
    head.textContent = title;
    tip.replaceChildren(head, rest.join(": "));
    tip.hidden = false;
    const at = term.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const left = Math.min(Math.max(16, at.left), window.innerWidth - size.width - 16);
    const above = at.top - size.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : at.bottom + 8}px`;
    term.setAttribute("aria-describedby", "tip");
  };
  const hide = () => { tip.hidden = true; };
  let touched = false;
  for (const term of document.querySelectorAll(".term")) {
    term.addEventListener("pointerenter", () => show(term));
    term.addEventListener("pointerleave", hide);
    term.addEventListener("focus", () => show(term));
    term.addEventListener("blur", hide);
    term.addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch"; });
    term.addEventListener("click", (event) => {
      if (!touched) return; // a mouse goes to the glossary
      event.preventDefault();
      show(term);
    });
  }
  window.addEventListener("scroll", hide, { passive: true });
  window.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // ---- tables that are wider than the page: say so, and let the keyboard scroll them
  const hint = document.createElement("p");
  hint.className = "more-columns";
  hint.textContent = "More columns: scroll the table sideways \u2192";
  const measure = (box) => {
    const wide = box.scrollWidth > box.clientWidth + 1;
    if (wide === box.classList.contains("is-wide")) return;
    box.classList.toggle("is-wide", wide);
    if (wide) {
      box.tabIndex = 0;
      box.before(hint.cloneNode(true));
    } else {
      box.removeAttribute("tabindex");
      box.previousElementSibling.remove();
    }
  };
  const boxes = new ResizeObserver((entries) => entries.forEach(({ target }) => measure(target)));
  document.querySelectorAll(".scroll").forEach((box) => boxes.observe(box));

  // ---- the player, after the first paint
  const start = () => {
    const payload = JSON.parse(document.getElementById("traces").textContent);
    const opening = JSON.parse(document.getElementById("opening").textContent);
    const box = document.getElementById("player");
    window.player = window.AnyorderPlayer.create(box, payload, { ...opening, sync: "progress" });
    box.style.minHeight = "0";
  };
  requestAnimationFrame(() => setTimeout(start, 0));
})();
