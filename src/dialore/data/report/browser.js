(() => {
  "use strict";
  const PAGE = 100;
  const TINTS = dialore.data("settings").tints;
  const at = (id) => document.getElementById(id);
  const list = at("list"), book = at("book"), more = at("more"), counted = at("counted");
  const fields = { search: at("search"), show: at("show"), language: at("language"), dataset: at("dataset"), order: at("order") };

  const { make, inflate, rove, inSight } = dialore;
  let details = null;
  const detail = async (answer) => (await (details ??= inflate("details")))[answer.place];

  const three = (value) => (value === 0 ? "0" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(3));
  const time = (seconds) => (seconds >= 1 ? `${three(seconds)} s` : `${Math.round(seconds * 1000)} ms`);
  const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

  const tokens = (usage) => usage.prompt_tokens + usage.completion_tokens;

  const fold = (title, ...content) => make("details", {}, make("summary", {}, title), ...content);
  const chips = (items, language) => make("ul", { class: "chips", lang: language }, items);

  // A fact is a chip; a passage or a persona sentence stands below where it is from.
  const knowledgeChip = ([text, kind, source, score, used, set, number, triple]) => {
    const piece = kind !== "fact";
    return make("li", { class: `chip ${set || "plain"}${piece ? " piece" : ""}${used ? " used" : ""}`, title: `${triple} · ${three(score)} · ${kind} from ${source}${set ? `, ${set}` : ""}` },
      set ? make("span", { class: "set", lang: "en", role: "img", "aria-label": set }, set[0].toUpperCase()) : "",
      piece ? make("span", { class: "origin", lang: "en" }, number ? make("b", {}, `${number} `) : "", source) : "",
      text, number && !piece ? make("sup", {}, String(number)) : "");
  };

  const knowledgePart = (knowledge, language) => {
    if (!knowledge.length) return null;
    const used = knowledge.filter((item) => item[4]);
    const rest = knowledge.filter((item) => !item[4]);
    return make("div", {}, make("h4", {}, `Knowledge: ${used.length} of ${knowledge.length} used`),
      used.length ? chips(used.map(knowledgeChip), language) : "",
      rest.length ? fold(`${rest.length} given, not used`, chips(rest.map(knowledgeChip), language)) : "");
  };

  // Sources in order, as marks; beside a gold plan, whether it is the same set.
  const planned = (plan) => make("ol", { class: "plan" }, plan.length ? plan.map((name) => make("li", {}, name)) : make("li", { class: "null" }, "NULL: no source"));
  const planPart = (plan, gold) => {
    if (!plan) return null;
    const same = gold && gold.length === plan.length && gold.every((name) => plan.includes(name));
    return make("div", {}, make("h4", {}, "Plan"), make("div", { class: "planned" }, planned(plan), gold ? make("span", { class: same ? "right" : "wrong" }, same ? "✓ as the gold plan" : ["≠ gold: ", gold.length ? gold.join(" → ") : "NULL"]) : ""));
  };
  const version = (name, kept, words, language) => make("div", { class: `answer${kept ? " chosen" : ""}` }, make("span", { class: "origin" }, kept ? `✓ ${name}` : name), make("span", { lang: language }, words));
  const stepsPart = ({ told, questions }, language) => [
    told.length ? make("dl", { class: "told" }, told.map(([name, words]) => make("div", {}, make("dt", {}, name), make("dd", { lang: language }, words)))) : null,
    questions.length ? fold(`${many(questions.length, "open question")} and ${questions.length === 1 ? "its" : "their"} answers`, make("ol", { class: "questions" }, questions.map(({ text: question, answers }) =>
      make("li", {}, make("p", { class: "question", lang: language }, question), answers.length ? answers.map(({ by, text, chosen }) => version(by, chosen, text, language)) : make("p", { class: "na" }, "nobody had an answer"))))) : null,
  ];

  const KINDS = { explicit: "queries said", implicit: "queries inferred", maintained: "topics kept", extended: "topics to bring up" };
  const demandsPart = (demands, language) => {
    const lines = demands ? Object.entries(KINDS).filter(([kind]) => (demands[kind] ?? []).length) : [];
    if (!lines.length) return null;
    return fold("Demands", ...lines.map(([kind, name]) => make("div", {}, make("h4", {}, name), chips(demands[kind].map((entity) => make("li", { class: "chip" }, entity)), language))));
  };

  const measuresPart = (measures) => {
    if (!measures.length) return null;
    return fold("Measures", make("table", { class: "measures" }, make("tbody", {}, measures.map(([name, value, problem, said]) =>
      make("tr", {}, make("th", { scope: "row" }, name),
        make("td", { class: value === null ? "na" : "num" }, value === null ? problem || "no value of its own" : three(value), said ? make("span", { class: "detail" }, said) : ""))))));
  };

  const stagePart = (stage, language) =>
    make("details", { class: `stage ${stage.outcome}` },
      make("summary", {}, make("span", { class: "name" }, stage.stage + (stage.outcome === "ok" ? "" : ` · ${stage.outcome}`)), make("span", { class: "time" }, time(stage.seconds))),
      make("p", {}, `by ${stage.model} · after ${time(stage.started)}${tokens(stage.usage) ? ` · ${many(tokens(stage.usage), "token")}` : ""}${stage.prompt ? ` · ${stage.prompt}` : ""}`),
      stage.notes.map((text) => make("p", {}, text)),
      stage.messages.length ? fold("Prompt", stage.messages.map(({ role, content }) => [make("h5", {}, role), make("pre", { tabindex: 0, lang: language }, content)])) : "",
      stage.completion ? fold("Completion", make("pre", { tabindex: 0, lang: language }, stage.completion)) : "",
      Object.keys(stage.output).length ? fold("Output", make("pre", { tabindex: 0, lang: language }, JSON.stringify(stage.output))) : "");

  const answerCard = (name, number, answer, told, language, several, gold) => {
    const { calls, cached } = told.usage;
    const cost = calls ? `${many(calls, "call")}${cached ? ` (${cached} cached)` : ""}, ${many(tokens(told.usage), "token")}, ${time(told.seconds)}` : time(told.seconds);
    const text = answer.status === "failed" ? [told.error] : told.parts.map(([words, after]) => [words, after.length ? make("sup", {}, after.join(", ")) : ""]);
    return make("article", { class: `card${answer.status === "failed" ? " failed" : ""}`, style: `--tint: var(--c${number % TINTS})`, "aria-label": name },
      make("header", {}, make("h3", {}, several ? `${name} #${answer.repetition + 1}` : name), make("span", { class: "cost" }, cost)),
      answer.unparsed || answer.repaired || answer.status === "failed" ? make("div", { class: "flags" }, answer.status === "failed" ? make("span", { class: "flag" }, "failed") : "", answer.unparsed ? make("span", { class: "flag" }, "unparsed stage") : "", answer.repaired ? make("span", { class: "flag" }, "repaired stage") : "") : "",
      make("p", { class: "text", lang: language }, text),
      planPart(told.steps.plan, gold), stepsPart(told.steps, language),
      knowledgePart(told.knowledge, language), demandsPart(told.demands, language), measuresPart(told.measures),
      told.stages.length ? fold(`Trace: ${many(told.stages.length, "stage")}`, make("div", {}, told.stages.map((stage) => stagePart(stage, language)))) : "");
  };

  const listed = (title, items, language) => items.length ? make("div", {}, make("h4", {}, title), make("ul", { lang: language }, items.map((item) => make("li", {}, item)))) : null;

  let data = null, found = [], shown = 0, open = null, latest = 0;

  const flagsOf = (entry) => {
    const all = Object.values(entry.answers).flat();
    const flags = [];
    if (all.some((answer) => answer.status === "failed")) flags.push("failed");
    if (all.some((answer) => answer.unparsed)) flags.push("unparsed");
    if (all.some((answer) => answer.repaired)) flags.push("repaired");
    return flags;
  };

  // The open dialogue is the list's one stop for Tab, and stands in sight; the arrow keys go from there.
  const mark = (entry) => {
    while (shown <= found.indexOf(entry) && shown < found.length) showMore();
    for (const button of list.querySelectorAll(".entry")) {
      const current = button.dataset.place === String(entry.place);
      if (current) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
      button.tabIndex = current ? 0 : -1;
      if (current) inSight(button, list.parentElement);
    }
  };
  const read = async (entry, { focus = false, stepped = 0 } = {}) => {
    open = entry;
    const turn = ++latest;
    mark(entry);
    const answers = Object.entries(entry.answers).flatMap(([number, some]) => some.map((answer) => ({ number: Number(number), answer, several: some.length > 1 })));
    const told = await Promise.all(answers.map(({ answer }) => detail(answer)));
    if (turn !== latest) return;
    const last = entry.turns[entry.turns.length - 1][0];
    const place = found.indexOf(entry);
    const step = (by, name) => make("button", { type: "button", disabled: place + by < 0 || place + by >= found.length, onclick: () => read(found[place + by], { stepped: by }) }, name);
    const steps = [step(-1, "Previous"), step(1, "Next")];
    book.replaceChildren(
      make("div", { class: "bookhead" }, make("h3", {}, entry.id, entry.topic ? make("small", {}, ` ${entry.topic}`) : ""), entry.apart === null ? "" : make("small", {}, `disagreement ${Math.round(entry.apart * 100)}%`), ...steps),
      make("div", { class: "talk" },
        make("ol", { class: "turns", lang: entry.language }, entry.turns.map(([speaker, text]) => make("li", { class: speaker === last ? "mine" : "theirs" }, make("span", { class: "who" }, speaker), make("p", {}, text)))),
        make("div", { class: "given" }, entry.reference ? make("div", {}, make("h4", {}, "Reference"), make("p", { lang: entry.language }, entry.reference)) : null,
          listed("Persona", entry.persona, entry.language), listed("Gold knowledge", entry.gold, entry.language), entry.plan ? make("div", {}, make("h4", {}, "Gold plan"), planned(entry.plan)) : null)),
      make("div", { class: "cards" }, answers.map(({ number, answer, several }, i) => answerCard(data.systems[number], number, answer, told[i], entry.language, several, entry.plan))));
    if (focus) book.focus({ preventScroll: false });
    // The button that was pressed is made anew: whoever pressed it stays on it, or on the other at an end.
    if (stepped) (steps.find((button, i) => !button.disabled && i === (stepped > 0 ? 1 : 0)) ?? steps.find((button) => !button.disabled))?.focus({ preventScroll: true });
  };

  const showMore = () => {
    const next = found.slice(shown, shown + PAGE);
    list.append(...next.map((entry) => make("li", {}, make("button", { type: "button", class: "entry", "data-place": entry.place, tabindex: -1, onclick: () => read(entry, { focus: true }) },
      make("span", { class: "id" }, entry.id, entry.flags.length ? make("span", { class: "bad" }, entry.flags.join(", ")) : ""),
      make("span", { class: "line", lang: entry.language }, entry.turns[entry.turns.length - 1][1])))));
    shown += next.length;
    more.hidden = shown >= found.length;
  };

  const filter = () => {
    const wanted = fields.search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const kind = fields.show.value;
    const threshold = kind === "apart" ? data.threshold : 0;
    found = data.dialogues.filter((entry) =>
      (!fields.language.value || entry.language === fields.language.value) &&
      (!fields.dataset.value || String(entry.dataset) === fields.dataset.value) &&
      (!kind || (kind === "apart" ? entry.apart !== null && entry.apart > 0 && entry.apart >= threshold : entry.flags.includes(kind))) &&
      wanted.every((word) => entry.words.includes(word)));
    if (fields.order.value === "apart") found.sort((a, b) => (b.apart ?? -1) - (a.apart ?? -1));
    counted.textContent = found.length === data.dialogues.length ? String(found.length) : `${found.length} of ${data.dialogues.length}`;
    list.replaceChildren();
    shown = 0;
    showMore();
    if (!found.length) {
      list.append(make("li", { class: "none" }, "No dialogue is like that."));
      open = null;
      latest += 1;
      book.replaceChildren();
    } else if (!found.includes(open)) read(found[0]);
    else read(open);
  };

  const start = async () => {
    if (!("DecompressionStream" in window)) {
      book.append(make("p", { class: "empty" }, "This browser cannot inflate the dialogues: use one of the last few years."));
      return;
    }
    data = await inflate("index");
    data.dialogues.forEach((entry, place) => {
      entry.place = place;
      entry.flags = flagsOf(entry);
      const texts = [entry.id, entry.topic, entry.reference, ...entry.turns.map((each) => each[1]), ...Object.values(entry.answers).flat().map((answer) => answer.text)];
      entry.words = texts.join("\n").toLowerCase();
    });
    const apart = data.dialogues.map((entry) => entry.apart).filter((value) => value !== null).sort((a, b) => b - a);
    data.threshold = apart.length ? apart[Math.max(Math.ceil(apart.length / 4) - 1, 0)] : 0;
    if (!apart.length) for (const field of [fields.show, fields.order]) field.querySelector("[value=apart]").remove();
    const names = { en: "English", zh: "Chinese" };
    const languages = new Set(data.dialogues.map((entry) => entry.language));
    at("language-label").hidden = languages.size < 2;
    for (const language of languages) fields.language.append(make("option", { value: language }, names[language] ?? language));
    data.datasets.forEach((name, number) => fields.dataset.append(make("option", { value: number }, name)));
    at("dataset-label").hidden = data.datasets.length < 2;
    const asked = new URLSearchParams(location.search).get("dialogue");
    open = data.dialogues.find((entry) => entry.id === asked) ?? null;
    filter();
  };

  let waiting = 0;
  fields.search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
  for (const name of ["show", "language", "dataset", "order"]) fields[name].addEventListener("change", filter);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  rove(list, ".entry", () => !more.hidden && (showMore(), true));
  more.addEventListener("click", () => {
    const before = shown;
    showMore();
    list.querySelectorAll(".entry")[before]?.focus({ preventScroll: true });
  });
  start().catch((error) => book.replaceChildren(make("p", { class: "empty" }, `The dialogues cannot be read: ${error.message}`)));
})();
