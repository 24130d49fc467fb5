/** Human evaluation: a sheet filled in item by item with keys, and for its owner who has done what, and agreement. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { request } from "./api";
import { type Loaded, Icon, Problem, Tabs, app, explain, t, useLoaded } from "./ui";
import "./desk.css";

interface Words {
  en: string;
  zh: string;
}

interface Item {
  id: string;
  dialogue: string;
  shown: Record<string, string>;
  texts: string[];
  columns: Record<string, string[]>;
  answers: Record<string, string>;
  comment: string;
}

interface Criterion {
  title: Words;
  compare: Words;
  rate: Words;
  scale: [number, number];
  anchors: Record<string, Words>;
}

interface Sheet {
  form: "pairwise" | "likert" | "ranking";
  title: Words;
  guide: Words;
  judges: string;
  criteria: Record<string, Criterion>;
  items: Item[];
}

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const CODE = "dialore.code";
const said = (words: Words) => t(words.en, words.zh);

export function Annotate(): JSX.Element {
  const [code, setCode] = useState(() => /^#\/annotate\/(\w+)/.exec(location.hash)?.[1] ?? sessionStorage.getItem(CODE) ?? "");
  const [sheet, setSheet] = useState<Sheet>();
  const [error, setError] = useState("");
  async function open(): Promise<void> {
    try {
      setSheet(await request<Sheet>("POST", "v1/annotate/sheet", { code }));
      sessionStorage.setItem(CODE, code);
      setError("");
    } catch (failure) {
      setError(explain(failure));
    }
  }
  useEffect(() => void (code && open()), []);
  const owner = useLoaded<Told>(app.needsKey ? "" : "v1/annotate");
  const leave = () => (sessionStorage.removeItem(CODE), history.replaceState(null, "", "#/annotate"), setSheet(undefined), setCode(""), void owner.reload());
  if (sheet) return <Judging {...{ code, sheet }} onLeave={leave} />;
  if (owner.status === 404) return <p class="desk note">{t("No sheets are served here. annotate = \"FOLDER\" under [server] in dialore.toml names them; docs/serve.md tells how.", "此处没有待标注的表。在 dialore.toml 的 [server] 下用 annotate = \"文件夹\" 指定，见 docs/serve.md。")}</p>;
  return (
    <div class="desk">
      <form class="card editor" onSubmit={(event) => (event.preventDefault(), void open())}>
        <h2>{t("Judge responses", "评判回应")}</h2>
        <label>
          {t("Your code", "您的标注码")}
          <input type="text" autocomplete="off" maxLength={64} value={code} onInput={(event) => setCode(event.currentTarget.value.trim())} />
        </label>
        <Problem text={error} />
        <div><button class="main" disabled={!code}>{t("Begin", "开始")}</button></div>
      </form>
      {!app.needsKey && <Overview {...owner} />}
    </div>
  );
}

const isDone = (item: Item) => Object.values(item.columns).flat().every((column) => item.answers[column]);

function Judging({ code, sheet, onLeave }: { code: string; sheet: Sheet; onLeave: () => void }): JSX.Element {
  const { form, items } = sheet;
  const [at, setAt] = useState(() => Math.max(0, items.findIndex((item) => !isDone(item))));
  const [, count] = useState(0);
  const [problem, setProblem] = useState("");
  const undone = useRef<{ at: number; criterion: string; before: Record<string, string> }[]>([]);
  const unsaved = useRef(new Map<string, { answers: Record<string, string>; comment?: string }>());
  const saving = useRef(Promise.resolve());
  const sending = useRef(false);
  const top = useRef<HTMLHeadingElement>(null);
  const item = items[at]!;
  const names = Object.keys(item?.columns ?? {});
  const current = names.find((name) => item.columns[name]!.some((column) => !item.answers[column]));
  const done = items.filter(isDone).length;

  /** Send what is not saved, one after the other; what could not be sent stays for the next time. */
  function save(): void {
    saving.current = saving.current.then(async () => {
      for (const [id, given] of [...unsaved.current]) {
        unsaved.current.delete(id);
        sending.current = true;
        try {
          await request("POST", "v1/annotate/answers", { code, item: id, ...given });
          setProblem("");
        } catch (error) {
          const later = unsaved.current.get(id);
          unsaved.current.set(id, { ...given, ...later, answers: { ...given.answers, ...later?.answers } });
          setProblem(explain(error));
        }
        sending.current = false;
      }
    });
  }
  /** Leave when all is saved; what could not be sent says so and stays. */
  async function leave(): Promise<void> {
    save();
    await saving.current;
    if (!unsaved.current.size) onLeave();
  }
  function keep(place: number, criterion: string, answers: Record<string, string>): void {
    const one = items[place]!;
    Object.assign(one.answers, answers);
    const columns = one.columns[criterion]!;
    const given = columns.filter((column) => one.answers[column]);
    // Ranks are sent together: a question of which a part is answered is no answer.
    if (given.length === columns.length || !given.length || Object.values(answers).includes("")) {
      const whole = given.length === columns.length;
      const sent = Object.fromEntries(columns.map((column) => [column, whole ? one.answers[column]! : ""]));
      const before = unsaved.current.get(one.id);
      unsaved.current.set(one.id, { ...before, answers: { ...before?.answers, ...sent } });
      save();
    }
    count((n) => n + 1);
  }
  function answer(criterion: string, column: string, value: string): void {
    undone.current.push({ at, criterion, before: { [column]: item.answers[column] ?? "" } });
    keep(at, criterion, { [column]: value });
  }
  function undo(): void {
    const last = undone.current.pop();
    if (!last) return;
    setAt(last.at);
    keep(last.at, last.criterion, last.before);
  }
  function go(to: number): void {
    setAt(Math.min(Math.max(to, 0), items.length - 1));
    top.current?.focus();
  }
  const values = (criterion: string) => choices(sheet, item, criterion);

  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const field = (event.target as Element).closest("input, textarea, select");
      if (field || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      const key = event.key.toUpperCase();
      const onButton = (event.target as Element).closest("button, a, summary");
      if (key === "ARROWRIGHT" || key === "N" || (key === "ENTER" && !onButton && !current)) go(at + 1);
      else if (key === "ARROWLEFT" || key === "P") go(at - 1);
      else if (key === "U") undo();
      else if (current) {
        const found = values(current).find((each) => each.keys.includes(key));
        const column = item.columns[current]!.find((each) => !item.answers[each])!;
        if (found) answer(current, column, found.value);
        else return;
      } else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
  useEffect(() => {
    const leaving = (event: BeforeUnloadEvent) => (unsaved.current.size || sending.current) && event.preventDefault();
    addEventListener("beforeunload", leaving);
    return () => removeEventListener("beforeunload", leaving);
  }, []);

  const judged = { response: t("Response", "回应"), query: t("Search query", "搜索词"), knowledge: t("Knowledge", "知识") }[sheet.judges];
  const shown: Record<string, string> = { topic: t("Topic", "话题"), persona: t("Persona", "人设"), knowledge: t("Knowledge", "知识"), stages: t("Stages", "各步骤") };
  const keys = { pairwise: "A, B, T", likert: t("digits", "数字键"), ranking: t("digits, a response after the other", "数字键，逐个回应") }[form];
  if (!item) return <p class="note">{t("This sheet has no items.", "此表没有条目。")}</p>;
  return (
    <div class="desk wide judging">
      <div class="row">
        <h2 tabIndex={-1} ref={top}>{said(sheet.title)}</h2>
        <span class="note push" role="status">{t(`Item ${at + 1} of ${items.length}, ${done} done`, `第 ${at + 1} 条，共 ${items.length} 条，已完成 ${done} 条`)}</span>
        <button type="button" class="action" onClick={() => void leave()}>{t("Leave", "离开")}</button>
      </div>
      <progress value={done} max={items.length} aria-label={t("Progress", "进度")} />
      <details class="note" open={!done}><summary>{t("Guide", "说明")}</summary><p>{said(sheet.guide)}</p></details>
      {done === items.length && <p class="card all-done" role="status">{t("All items are done. Thank you! You may still change your answers.", "所有条目都已完成。谢谢！您仍可修改回答。")}</p>}
      <div class="case" key={item.id}>
        <div class="context">
          <section class="card">
            <h3>{t("Dialogue", "对话")}</h3>
            <div class="talked">{item.dialogue.split("\n").map((line, n) => <p key={n}>{line}</p>)}</div>
          </section>
          {Object.entries(item.shown).map(([name, text]) => (
            <section class="card" key={name}><h3>{shown[name]}</h3><p class="quoted">{text}</p></section>
          ))}
        </div>
        <div class="verdict">
          <div class="texts">
            {item.texts.map((text, n) => (
              <section class="card" key={n}><h3>{judged} {form === "likert" ? "" : LETTERS[n]}</h3><p class="quoted">{text}</p></section>
            ))}
          </div>
          {names.map((name) => {
            const criterion = sheet.criteria[name]!;
            const points = Object.entries(criterion.anchors);
            return (
              <section class={name === current ? "card question now" : "card question"} key={name}>
                <h3>{said(criterion.title)}</h3>
                <p>{said(form === "likert" ? criterion.rate : criterion.compare)}</p>
                {form === "likert" && points.length > 0 && <p class="note">{points.map(([point, words]) => `${point} = ${said(words)}`).join("; ")}</p>}
                {form === "ranking" && <p class="note">{t("1 is best; equal ranks are allowed.", "1 为最好；可以并列。")}</p>}
                {item.columns[name]!.map((column, n) => (
                  <div class="row" key={column}>
                    {form === "ranking" && <b>{LETTERS[n]}</b>}
                    <Tabs
                      label={form === "ranking" ? `${said(criterion.title)} ${LETTERS[n]}` : said(criterion.title)}
                      value={item.answers[column] ?? ""}
                      options={values(name).map((each) => [each.value, each.text] as const)}
                      onChange={(value) => answer(name, column, value)}
                    />
                  </div>
                ))}
              </section>
            );
          })}
          <label>
            {t("Comment", "备注")}
            <input
              type="text"
              maxLength={2000}
              defaultValue={item.comment}
              onChange={(event) => {
                item.comment = event.currentTarget.value;
                unsaved.current.set(item.id, { answers: {}, ...unsaved.current.get(item.id), comment: item.comment });
                save();
              }}
            />
          </label>
          <Problem text={problem && `${t("Not saved yet", "尚未保存")}: ${problem}`}>
            <button type="button" class="plain" onClick={save}>{t("Try again", "重试")}</button>
          </Problem>
          <div class="row">
            <button type="button" class="plain" disabled={!at} onClick={() => go(at - 1)}>{t("Back", "上一条")}</button>
            <button type="button" class="plain" disabled={!undone.current.length} onClick={undo}>{t("Undo", "撤销")}</button>
            <button type="button" class="main push" disabled={at === items.length - 1} onClick={() => go(at + 1)}>{t("Next", "下一条")}</button>
          </div>
          <p class="note keys">{t("Keys", "按键")}: {keys}; {t("U undoes; Enter or → next, ← back", "U 撤销；回车或 → 下一条，← 上一条")}</p>
        </div>
      </div>
    </div>
  );
}

/** What a question can be answered by, with the keys for it. */
function choices(sheet: Sheet, item: Item, criterion: string): { value: string; text: string; keys: string[] }[] {
  if (sheet.form === "pairwise")
    return [
      { value: "A", text: "A", keys: ["A", "1"] },
      { value: "tie", text: t("tie", "平局"), keys: ["T", "0", "="] },
      { value: "B", text: "B", keys: ["B", "2"] },
    ];
  const [low, high] = sheet.form === "ranking" ? [1, item.texts.length] : sheet.criteria[criterion]!.scale;
  return Array.from({ length: high - low + 1 }, (_, n) => ({ value: `${low + n}`, text: `${low + n}`, keys: [`${low + n}`] }));
}

// --- for the owner

interface Told {
  criteria: string;
  form: string;
  paper: string;
  annotators: { name: string; code: string; done: number; total: number }[];
  counted: string;
  tables: Table[];
  reading: string;
}

export interface Table {
  name: string;
  words: number;
  columns: string[];
  rows: string[][];
}

function Overview({ data, error, status, reload }: Loaded<Told>): JSX.Element {
  const [shown, setShown] = useState(false);
  if (!data) return <Problem text={status === 403 ? "" : error} />;
  return (
    <section class="card editor">
      <div class="row">
        <h2>{t("For the owner", "所有者视图")}</h2>
        <span class="note">{data.criteria} · {data.form} · {data.paper}</span>
        <button type="button" class="plain push" onClick={() => void reload()}><Icon name="redo" /> {t("Reload", "刷新")}</button>
      </div>
      <Shown table={{ name: t("Annotators", "标注者"), words: 2, columns: [t("annotator", "标注者"), t("code", "标注码"), t("done", "已完成")], rows: data.annotators.map((each) => [each.name, shown ? each.code : "••••", `${each.done} / ${each.total}`]) }} />
      <label class="row"><input type="checkbox" checked={shown} onChange={(event) => setShown(event.currentTarget.checked)} />{t("Show the codes", "显示标注码")}</label>
      <p class="note">{t("An annotator opens this page and gives the code, or opens #/annotate/CODE.", "标注者打开此页输入标注码，或直接打开 #/annotate/标注码。")}</p>
      <p>{data.counted}</p>
      {data.tables.filter((table) => table.rows.length).map((table) => <Shown key={table.name} table={table} />)}
      <p class="note">{data.reading}</p>
    </section>
  );
}

/** The words of the reports' tables in Chinese. */
const HEADS: Record<string, string> = {
  Scores: "分数", Contests: "比较", Agreement: "一致性", "Cost and latency, a response": "每条回复的成本与延迟", "Failures and parsing": "失败与解析",
  system: "系统", systems: "系统", criterion: "标准", mean: "均值", "mean rank": "平均名次", items: "条目", annotators: "标注者", same: "相同", wins: "胜", ties: "平", losses: "负",
  responses: "回复", calls: "调用", "prompt tokens": "提示词元", "completion tokens": "生成词元", "cached calls": "缓存调用", retries: "重试", "p50 with its wait": "p50（含等待）",
  ok: "成功", failed: "失败", stages: "步骤", "parsed at once": "一次解析", repaired: "已修复", unparsed: "未解析", "failed stages": "失败步骤",
};
const head = (words: string) => {
  const [first, ...rest] = words.split(" · ");
  return [t(first!, HEADS[first!] ?? first!), ...rest].join(" · ");
};

/** A table of words and figures; it scrolls by itself where it is too wide. */
export function Shown({ table }: { table: Table }): JSX.Element {
  return (
    <div class="scrolls" role="region" tabIndex={0} aria-label={head(table.name)}>
      <table>
        <caption>{head(table.name)}</caption>
        <thead><tr>{table.columns.map((name) => <th key={name} scope="col">{head(name)}</th>)}</tr></thead>
        <tbody>
          {table.rows.map((row, n) => (
            <tr key={n}>{row.map((cell, place) => <td key={place} class={place < table.words ? "" : "figure"}>{cell}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
