// What every page does, in the head: the theme before anything is painted, the rest when the page is read.
const dialore = (() => {
  "use strict";
  const root = document.documentElement;
  const THEMES = { auto: "automatic", light: "light", dark: "dark" };
  const stored = () => { try { return localStorage.getItem("dialore-theme"); } catch { return null; } };
  const keep = (name) => { try { localStorage.setItem("dialore-theme", name); } catch { /* a page of a file may not store */ } };
  const asked = new URLSearchParams(location.search).get("theme");
  root.dataset.theme = [asked, stored()].find((name) => Object.hasOwn(THEMES, name ?? "")) ?? "auto";

  const wireTheme = () => {
    const button = document.getElementById("theme");
    if (!button) return;
    const say = () => {
      button.textContent = `Theme: ${root.dataset.theme}`;
      button.setAttribute("aria-label", `Colour theme: ${THEMES[root.dataset.theme]}`);
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      const names = Object.keys(THEMES);
      root.dataset.theme = names[(names.indexOf(root.dataset.theme) + 1) % names.length];
      keep(root.dataset.theme);
      say();
    });
    // Another tab's choice is this one's, too.
    addEventListener("storage", (event) => {
      if (event.key === "dialore-theme" && Object.hasOwn(THEMES, event.newValue ?? "")) { root.dataset.theme = event.newValue; say(); }
    });
    say();
  };

  // The part that one reads is marked among the parts' links, which scroll to it within their own bar.
  const wireParts = () => {
    const bar = document.querySelector(".parts ol");
    if (!bar) return;
    const fade = () => {
      const sides = [bar.scrollLeft > 2 && "before", bar.scrollLeft + bar.clientWidth < bar.scrollWidth - 2 && "after"].filter(Boolean);
      if (sides.length) bar.dataset.more = sides.join(" ");
      else delete bar.dataset.more;
    };
    bar.addEventListener("scroll", fade, { passive: true });
    addEventListener("resize", fade);
    fade();
    const links = new Map([...bar.querySelectorAll("a")].map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const link = links.get(target.id);
        if (!link) continue;
        if (!isIntersecting) { link.removeAttribute("aria-current"); continue; }
        link.setAttribute("aria-current", "true");
        const own = link.getBoundingClientRect(), box = bar.getBoundingClientRect();
        if (own.left < box.left + 40 || own.right > box.right - 40) bar.scrollLeft += own.left - box.left - (box.width - own.width) / 2;
      }
    }, { rootMargin: "-30% 0px -60% 0px" });
    document.querySelectorAll("main > section").forEach((each) => seen.observe(each));
  };

  // A link to a folded part opens it, and whatever it lies in.
  const open = (target) => {
    for (let each = target; each; each = each.parentElement) if (each instanceof HTMLDetailsElement) each.open = true;
  };
  const wireFolds = () => {
    const aim = (hash) => {
      try { return document.getElementById(decodeURIComponent(hash.slice(1))); } catch { return null; /* "#100%" */ }
    };
    const reveal = () => {
      const target = aim(location.hash);
      if (target?.closest("details")) { open(target); target.scrollIntoView(); }
    };
    addEventListener("hashchange", reveal);
    document.addEventListener("click", (event) => {
      const link = event.target instanceof Element && event.target.closest("a[href^='#']");
      if (link) open(aim(link.hash));
    });
    reveal();
    const fold = document.getElementById("fold");
    if (!fold) return;
    fold.hidden = false;
    fold.addEventListener("click", () => {
      const opened = fold.getAttribute("aria-pressed") !== "true";
      document.querySelectorAll(fold.dataset.folds).forEach((each) => { each.open = opened; });
      fold.setAttribute("aria-pressed", String(opened));
      fold.textContent = opened ? "Close all" : "Open all";
    });
  };

  // What a model or a data set wrote goes into a page as text, never as markup.
  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === undefined || value === null || value === false) continue;
      if (name === "class") made.className = value;
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value === true ? "" : String(value));
    }
    made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
    return made;
  };

  // The page's data: JSON as it is, or gzipped in base64.
  const data = (id) => JSON.parse(document.getElementById(id).textContent);
  const inflate = async (id) => {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };

  // A list is one stop for Tab; the arrow keys, Home and End go through it. `more` adds entries, where there are some.
  const rove = (list, selector, more = () => false) => list.addEventListener("keydown", (event) => {
    const entries = [...list.querySelectorAll(selector)], place = entries.indexOf(document.activeElement);
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: entries.length - 1 }[event.key];
    if (to === undefined || place < 0) return;
    event.preventDefault();
    if (to >= entries.length && !more()) return;
    const next = list.querySelectorAll(selector)[to];
    if (!next) return;
    entries[place].tabIndex = -1;
    next.tabIndex = 0;
    next.focus({ preventScroll: true });
    inSight(next, list.parentElement);
  });
  const inSight = (each, shelf) => {
    const box = shelf.getBoundingClientRect(), own = each.getBoundingClientRect();
    if (own.top < box.top) shelf.scrollTop -= box.top - own.top;
    else if (own.bottom > box.bottom) shelf.scrollTop += own.bottom - box.bottom;
  };

  document.addEventListener("DOMContentLoaded", () => { wireTheme(); wireParts(); wireFolds(); });
  return { make, data, inflate, rove, inSight };
})();
