(() => {
  "use strict";
  const root = document.documentElement;
  const themes = ["auto", "light", "dark"];
  const theme = document.getElementById("theme");
  const words = { auto: "automatic", light: "light", dark: "dark" };
  const stored = () => { try { return localStorage.getItem("dialore-theme"); } catch { return null; } };
  const keep = (name) => { try { localStorage.setItem("dialore-theme", name); } catch { /* a file page may not store */ } };
  const apply = (name) => {
    root.dataset.theme = name;
    theme.textContent = `Theme: ${name}`;
    theme.setAttribute("aria-label", `Colour theme: ${words[name]}`);
  };
  const asked = new URLSearchParams(location.search).get("theme");
  apply(themes.includes(asked) ? asked : themes.includes(stored()) ? stored() : "auto");
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length];
    apply(next);
    keep(next);
  });

  const fold = document.getElementById("fold");
  fold.addEventListener("click", () => {
    const open = fold.getAttribute("aria-pressed") !== "true";
    document.querySelectorAll("details.how").forEach((each) => { each.open = open; });
    fold.setAttribute("aria-pressed", String(open));
    fold.textContent = open ? "Close all" : "Open all";
  });

  // A link to a folded part opens it.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a[href^='#']");
    const target = link && document.getElementById(link.getAttribute("href").slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  });
  reveal();

  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  if ("IntersectionObserver" in window) {
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const link = links.get(entry.target.id);
        if (!link) continue;
        if (entry.isIntersecting) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }, { rootMargin: "-30% 0px -60% 0px" });
    document.querySelectorAll("main > section").forEach((each) => seen.observe(each));
  }
})();
