/** Runs: how far each is while it runs, its scores and plots, and its dialogues with every system's response. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { Shown, type Table } from "./annotate";
import { request, url } from "./api";
import { Problem, download, draw, explain, seconds, t, useLoaded } from "./ui";
import "./desk.css";

interface Brief {
  name: string;
  dialogues: number;
  systems: { name: string; model: string; ok: number; failed: number; total: number; tokens: number }[];
  metrics: string[];
  changed: string;
}

interface Report {
  title: string;
  tables: Table[];
  reading: string[];
  figures: { title: string; svg: string }[];
  browser: { index: string; details: string } | null;
}

interface Entry {
  id: string;
  topic: string;
  persona: string[];
  turns: [string, string][];
  reference: string;
  gold: string[];
  answers: Record<string, { text: string; status: string; values: Record<string, number>; place: number }[]>;
}

interface Detail {
  error: string | null;
  seconds: number;
  parts: [string, number[]][];
  steps: { told: [string, string][] };
  /** Text, kind, source, score, whether it was used, set, number among the citations, triple. */
  knowledge: [string, string, string, number, boolean, string, number, string][];
}

interface Dialogues {
  systems: string[];
  entries: Entry[];
  details: Detail[];
}

const LIVE = 2000;
const PATIENCE = 10_000;
const view = { run: "", dialogue: "", query: "" };

const madeOf = (run: Brief) => run.systems.reduce((sum, each) => sum + each.ok + each.failed, 0);
const allOf = (run: Brief) => run.systems.reduce((sum, each) => sum + each.total, 0);
const isLive = (run: Brief) => madeOf(run) < allOf(run) && Date.now() - Date.parse(run.changed) < 300_000;

export function Runs(): JSX.Element {
  const { data, error, status, reload } = useLoaded<{ data: Brief[] }>("v1/runs");
  useEffect(() => {
    if (status === 404) return;
    const timer = setInterval(() => void (!document.hidden && reload()), LIVE);
    return () => clearInterval(timer);
  }, [status === 404]);
  if (!data) return status === 404 ? <p class="desk note">{t("No runs are shown here. runs = \"FOLDER\" under [server] in dialore.toml names their folder.", "此处没有实验。在 dialore.toml 的 [server] 下用 runs = \"文件夹\" 指定。")}</p> : <Problem text={error} />;
  const open = data.data.find((run) => run.name === view.run) ?? data.data[0];
  return (
    <div class="desk wide">
      <Problem text={error} />
      {!open && <p class="note">{t("There is no run in the folder yet.", "文件夹中还没有实验。")}</p>}
      <ul class="runs" aria-label={t("Runs", "实验")}>
        {data.data.map((run) => (
          <li key={run.name}>
            <button type="button" class="card run" aria-pressed={run === open} onClick={() => (Object.assign(view, { run: run.name, dialogue: "" }), draw())}>
              <b>{run.name}</b>
              <span class="note">{isLive(run) ? t("running", "运行中") : madeOf(run) < allOf(run) ? t("not finished", "未完成") : t("finished", "已完成")}</span>
              <span class="note">{t(`${madeOf(run)} of ${allOf(run)} responses`, `${madeOf(run)} / ${allOf(run)} 条回复`)}</span>
              <progress value={madeOf(run)} max={allOf(run) || 1} aria-label={t(`Progress of ${run.name}`, `${run.name} 的进度`)} />
            </button>
          </li>
        ))}
      </ul>
      {open && <Run key={open.name} run={open} />}
    </div>
  );
}

function Run({ run }: { run: Brief }): JSX.Element {
  const [report, setReport] = useState<Report>();
  const [error, setError] = useState("");
  const path = url`v1/runs/${run.name}`;
  const state = `${madeOf(run)} ${run.metrics}`;
  const [loaded, setLoaded] = useState({ state: "", at: 0, busy: false });
  async function load(): Promise<void> {
    setLoaded({ ...loaded, busy: true });
    try {
      setReport(await request<Report>("GET", path));
      setError("");
    } catch (failure) {
      setError(explain(failure));
    }
    setLoaded({ state, at: Date.now(), busy: false });
  }
  // A report is read from all responses: of a run under way a new one is made now and then.
  useEffect(() => void (!loaded.busy && loaded.state !== state && Date.now() - loaded.at > PATIENCE && load()));
  async function save(): Promise<void> {
    try {
      download(`${run.name}.html`, (await request<{ html: string }>("GET", `${path}/report`)).html, "text/html");
    } catch (failure) {
      setError(explain(failure));
    }
  }
  const progress: Table = {
    name: t("Systems", "系统"),
    words: 2,
    columns: [t("system", "系统"), t("model", "模型"), t("done", "完成"), t("failed", "失败"), t("of", "总数"), "tokens"],
    rows: run.systems.map((each) => [each.name, each.model, `${each.ok}`, `${each.failed}`, `${each.total}`, each.tokens.toLocaleString("en")]),
  };
  return (
    <>
      <div class="row">
        <h2>{report?.title || run.name}</h2>
        <span class="note" role="status">{loaded.busy ? t("Reading the responses…", "正在读取回复…") : ""}</span>
        <button type="button" class="plain push" disabled={!report} onClick={() => void save()}>{t("Save the whole report", "保存完整报告")}</button>
      </div>
      <Problem text={error} />
      <div class="card"><Shown table={progress} /></div>
      {report?.tables.map((table) => <div class="card" key={table.name}><Shown table={table} /></div>)}
      {!!report?.reading.length && <details class="note"><summary>{t("How to read the scores", "如何阅读分数")}</summary>{report.reading.map((line) => <p key={line}>{line}</p>)}</details>}
      {!!report?.figures.length && (
        <section class="card">
          <h2>{t("Plots", "图表")}</h2>
          <div class="plots">{report.figures.map((each) => <figure key={each.title}><img src={`data:image/svg+xml;base64,${each.svg}`} alt="" /><figcaption class="note">{each.title}</figcaption></figure>)}</div>
        </section>
      )}
      {report?.browser && <Browser packed={report.browser} />}
    </>
  );
}

async function inflated(packed: string): Promise<unknown> {
  const bytes = Uint8Array.from(atob(packed), (each) => each.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

function Browser({ packed }: { packed: { index: string; details: string } }): JSX.Element | null {
  const [data, setData] = useState<Dialogues>();
  useEffect(() => {
    void Promise.all([inflated(packed.index), inflated(packed.details)]).then(([index, details]) => {
      const { systems, dialogues } = index as { systems: string[]; dialogues: Entry[] };
      setData({ systems, entries: dialogues, details: details as Detail[] });
    });
  }, [packed]);
  if (!data) return null;
  const wanted = view.query.toLowerCase();
  const texts = (entry: Entry) => [entry.id, ...entry.turns.flat(), ...Object.values(entry.answers).flat().map((each) => each.text)].join("\n");
  const found = data.entries.filter((entry) => texts(entry).toLowerCase().includes(wanted));
  const open = found.find((entry) => entry.id === view.dialogue) ?? found[0];
  return (
    <section class="browser" aria-label={t("Dialogues", "对话")}>
      <div class="entries">
        <h2>{t("Dialogues", "对话")} <span class="note">{found.length}</span></h2>
        <input type="search" aria-label={t("Search the dialogues", "搜索对话")} placeholder={t("Search", "搜索")} value={view.query} onInput={(event) => ((view.query = event.currentTarget.value), draw())} />
        <ul class="scroll-list" tabIndex={0} aria-label={t("Dialogues found", "找到的对话")}>
          {found.map((entry) => (
            <li key={entry.id}>
              <button type="button" class="entry" aria-pressed={entry === open} onClick={() => ((view.dialogue = entry.id), draw())}>
                <span class="note">{entry.id}</span> {entry.turns[entry.turns.length - 1]?.[1]}
              </button>
            </li>
          ))}
        </ul>
      </div>
      {open && (
        <div class="opened">
          <section class="card talked">
            {open.turns.map(([speaker, text], n) => <p key={n}><b>{speaker}</b> {text}</p>)}
            {open.persona.length > 0 && <p class="note">{t("Persona", "人设")}: {open.persona.join(" · ")}</p>}
            {open.gold.length > 0 && <p class="note">{t("Gold knowledge", "标准知识")}: {open.gold.join(" · ")}</p>}
            {open.reference && <p class="note">{t("Reference", "参考回复")}: {open.reference}</p>}
          </section>
          <div class="texts">
            {data.systems.map((name, n) =>
              (open.answers[n] ?? []).map((answer) => <Answer key={answer.place} {...{ name, answer }} detail={data.details[answer.place]!} />),
            )}
          </div>
        </div>
      )}
    </section>
  );
}

function Answer(props: { name: string; answer: Entry["answers"][string][number]; detail: Detail }): JSX.Element {
  const { name, answer, detail } = props;
  const values = Object.entries(answer.values).map(([metric, value]) => `${metric} ${value.toFixed(3)}`);
  return (
    <section class="card answer">
      <h3>{name}</h3>
      {detail.error && <p class="problem">{detail.error}</p>}
      <p class="quoted">{detail.parts.map(([text, numbers], n) => <span key={n}>{text}{numbers.length > 0 && <sup>[{numbers.join(", ")}]</sup>}</span>)}</p>
      <p class="note">{[seconds(detail.seconds), ...values].join(" · ")}</p>
      {detail.steps.told.length > 0 && (
        <details class="note"><summary>{t("Stages", "各步骤")}</summary><dl>{detail.steps.told.map(([stage, words], n) => <div key={n}><dt>{stage}</dt><dd>{words}</dd></div>)}</dl></details>
      )}
      {detail.knowledge.length > 0 && (
        <details class="note" open={detail.knowledge.length <= 8}>
          <summary>{t(`Knowledge: ${detail.knowledge.length} pieces, ${detail.knowledge.filter((each) => each[4]).length} used`, `知识：${detail.knowledge.length} 条，用到 ${detail.knowledge.filter((each) => each[4]).length} 条`)}</summary>
          <ul class="lines">
            {detail.knowledge.map(([text, kind, source, , used, , number], n) => (
              <li key={n} class={`given ${kind}`}>{number > 0 && <b>[{number}] </b>}<span class={used ? "quoted" : ""}>{text}</span> <span class="tag">{used ? `${source} · ${t("used", "用到")}` : source}</span></li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}
