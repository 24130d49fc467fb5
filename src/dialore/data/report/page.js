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

  const metric = document.getElementById("metric");
  if (metric) {
    const pick = () => {
      for (const part of document.querySelectorAll(".figures")) part.hidden = part.dataset.metric !== metric.value;
    };
    metric.addEventListener("change", pick);
    pick();
  }

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
