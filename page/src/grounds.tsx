/** Why a response says what it says: what was needed, where it was looked for, what was found, and every stage. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { type Grounding, type Piece, type StageTrace, type Trace, url } from "./api";
import type { Turn } from "./conversation";
import { place, stageName } from "./talk";
import { Problem, seconds, t, useLoaded } from "./ui";

// --- what was found, from the trace

interface Found {
  id: string;
  need: string;
  asked: boolean;
  source: string;
  text: string;
  probability?: number;
  isKept: boolean;
  why: string;
  piece?: Piece;
  number?: number;
}

interface Need {
  what: string;
  asked: boolean;
  source: string;
}

interface Grounds {
  needs: Need[];
  found: Found[];
}

interface Selected {
  id: string;
  need: string;
  asked: boolean;
  source: string;
  text?: string;
  probability: number;
  kept: boolean;
  why: string;
}

/** Needs and pieces: of weave from its selection; of others from what each search found; else what was given. */
function groundsOf(grounding: Grounding, stages: StageTrace[]): Grounds {
  const numbers = new Map(grounding.citations.map((each) => [each.id, each.number]));
  const pieces = new Map(grounding.knowledge.map((piece) => [piece.id, piece]));
  const output = (name: string) => stages.find((each) => each.stage === name)?.output ?? {};
  const selected = (output("selection").pieces ?? []) as Selected[];
  const searches = stages.filter((each) => Array.isArray(each.output.found) && each.output.query);
  let needs: Need[] = [];
  let found: Omit<Found, "piece" | "number">[] = [];
  if (selected.length || output("needs").needs) {
    needs = ((output("needs").needs ?? []) as Need[]).map(({ what, asked, source }) => ({ what, asked, source }));
    // What the draft was shown is found by the words of the last turns: how likely that is of use says little.
    const looked = new Set(searches.filter((each) => !each.stage.startsWith("first-look")).flatMap(({ output }) => output.found as string[]));
    found = selected.map(({ kept, probability, why, ...each }) => {
      const isSought = looked.has(each.id);
      return { ...each, isKept: kept, text: each.text ?? "", probability: isSought ? probability : undefined, why: isSought || !why.includes("under") ? why : "" };
    });
  } else if (searches.length) {
    found = searches.flatMap(({ output }) =>
      (output.found as string[]).map((id) => {
        const [need, source] = [String(output.query), String(output.source)];
        return { id, need, asked: true, source, text: "", isKept: pieces.has(id), why: "" };
      }),
    );
  } else {
    const demands = grounding.demands;
    const asked = [...(demands?.explicit ?? []), ...(demands?.implicit ?? [])];
    needs = [...asked, ...(demands?.maintained ?? []), ...(demands?.extended ?? [])].map((what) => ({ what, asked: asked.includes(what), source: "" }));
  }
  for (const { need, asked, source } of found) {
    if (!needs.some((each) => each.what === need)) needs.push({ what: need, asked, source });
  }
  const seen = new Set(found.map((each) => each.id));
  for (const piece of grounding.knowledge.filter((each) => !seen.has(each.id))) {
    found.push({ id: piece.id, need: "", asked: false, source: piece.source, text: piece.text, isKept: true, why: "" });
  }
  return {
    needs: needs.filter((need) => need.source !== "none" || found.some((each) => each.need === need.what)),
    found: found.map((each) => ({ ...each, piece: pieces.get(each.id), number: numbers.get(each.id), text: pieces.get(each.id)?.text ?? each.text })),
  };
}

/** Why a piece was dropped, in the reader's language. */
function whyOf(why: string): string {
  const least = /under ([\d.]+)/.exec(why)?.[1];
  if (least) return t(`less likely of use than ${percent(+least)}`, `有用的概率低于 ${percent(+least)}`);
  const most = /^(\d+) are kept/.exec(why)?.[1];
  if (most) return t(`${most} are kept already`, `已保留 ${most} 条`);
  if (why.includes("history")) return t("the conversation has said it", "对话中已说过");
  return why.includes("given already") ? t("it is given already", "已给出") : why;
}

const percent = (value: number) => `${+(value * 100).toPrecision(2)}%`;

function state(found: Found): string {
  const chance = found.probability === undefined ? "" : t(`likely of use: ${percent(found.probability)}`, `有用的概率：${percent(found.probability)}`);
  const kept = found.number
    ? t(`cited as ${found.number}`, `引用为 ${found.number}`)
    : found.piece?.used
      ? t("used", "已使用")
      : found.isKept
        ? t("given, not used", "已提供，未使用")
        : t("dropped", "未采用") + (found.why ? t(`: ${whyOf(found.why)}`, `：${whyOf(found.why)}`) : "");
  return [chance, kept].filter(Boolean).join(" · ");
}

// --- the graph: needs -> sources -> pieces -> response

interface Spot {
  id: string;
  column: number;
  label: string;
  told: string;
  kind: string;
  /** The piece that it stands for. */
  piece?: string;
}

const [ROW, TALL, GAP, SHOWN] = [33, 25, 20, 12];

/** The text as far as it fits: characters of Chinese are twice as wide. */
function fit(text: string, width: number): string {
  let room = width;
  const characters = Array.from(text);
  const end = characters.findIndex((sign) => (room -= sign > "\u2e80" ? 11.5 : 6) < 0);
  return end < 0 ? text : `${characters.slice(0, Math.max(1, end - 1)).join("")}…`;
}

/** The paths that a piece came by: each is what was needed, where it was looked for, the piece, the response. */
function pathsOf({ needs, found }: Grounds): { spots: Spot[]; paths: string[][] } {
  const spots = new Map<string, Spot>();
  const spot = (one: Spot) => (spots.has(one.id) || spots.set(one.id, one), one.id);
  const need = ({ what, asked }: Need) =>
    spot({ id: `need ${what}`, column: 0, label: what, kind: "need", told: `${asked ? t("Asked for", "被问到") : t("Would help", "有助于回答")}: ${what}` });
  const source = (name: string) => spot({ id: `source ${name}`, column: 1, label: name, kind: "source", told: `${t("Looked for in", "查找于")}: ${name}` });
  const ranked = [...found].sort((a, b) => Number(b.isKept) - Number(a.isKept) || (b.probability ?? 1) - (a.probability ?? 1));
  const shown = new Set(ranked.slice(0, SHOWN).map((each) => each.id));
  const response = { id: "response", column: 3, label: "", kind: "response", told: t("The response", "回复") };
  const paths: string[][] = needs.map((each) => [need(each), ...(each.source && each.source !== "none" ? [source(each.source)] : [])]);
  for (const each of ranked.filter((one) => shown.has(one.id))) {
    const told = `${each.piece ? place(each.piece) || each.text : each.text} · ${state(each)}`;
    const kind = `${each.piece?.kind ?? "passage"} ${each.isKept ? "kept" : "dropped"}`;
    const label = each.piece?.section ?? each.piece?.title ?? each.text;
    const piece = spot({ id: `piece ${each.id}`, column: 2, label: each.number ? `${each.number} ${label}` : label, kind, told, piece: each.id });
    const wanted = needs.find((one) => one.what === each.need);
    paths.push([...(wanted ? [need(wanted)] : []), source(each.source), piece, ...(each.number || each.piece?.used ? [spot(response)] : [])]);
  }
  return { spots: [...spots.values()], paths };
}

function Graph({ grounds, onPiece }: { grounds: Grounds; onPiece: (id: string) => void }): JSX.Element | null {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(400);
  const [active, setActive] = useState("");
  const [stop, setStop] = useState("");
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(280, Math.floor(entry!.contentRect.width))));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const { spots, paths } = pathsOf(grounds);
  const inner = width - 3 * GAP - TALL - 2;
  const widths = [0.34 * inner, 0.22 * inner, 0.44 * inner, TALL];
  const columns = widths.map((_, column) => spots.filter((each) => each.column === column));
  const rows = Math.max(...columns.map((each) => each.length));
  const height = rows * ROW + 22;
  const left = (column: number) => 1 + widths.slice(0, column).reduce((sum, each) => sum + each + GAP, 0);
  const middle = (id: string) => {
    const column = spots.find((each) => each.id === id)!.column;
    const index = columns[column]!.findIndex((each) => each.id === id);
    return 22 + ((index + 0.5) * rows * ROW) / columns[column]!.length;
  };
  const near = new Set(paths.filter((path) => path.includes(active)).flat());
  const edges = new Map(paths.flatMap((path) => path.slice(1).map((to, index) => [`${path[index]}\n${to}`, [path[index]!, to]] as const)));
  const first = spots.find((each) => each.id === stop) ?? spots[0];
  const columnOf = (id: string) => spots.find((each) => each.id === id)!.column;
  function move(event: KeyboardEvent): void {
    const now = spots.find((each) => each.id === active);
    const step = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!now || !step) return;
    event.preventDefault();
    const column = columns[now.column]!;
    const next = event.key.endsWith("p") || event.key.endsWith("n")
      ? column[column.indexOf(now) + step]
      : columns[now.column + step]?.find((each) => near.has(each.id));
    if (next) box.current!.querySelector<SVGRectElement>(`[data-id="${CSS.escape(next.id)}"]`)?.focus();
  }
  const headings = [t("needed", "所需"), t("looked for in", "查找于"), t("found", "找到")];
  return (
    <div class="graph" ref={box}>
      <svg width={width} height={height} role="group" aria-label={t("From needs to the response; arrow keys step through it", "从所需知识到回复；用方向键浏览")} onKeyDown={move} onMouseLeave={() => setActive("")}>
        {headings.map((text, column) => columns[column]!.length > 0 && (
          <text key={text} class="heading" x={left(column)} y="12">{text}</text>
        ))}
        {[...edges].map(([name, [from, to]]) => {
          const [x1, y1, x2, y2] = [left(columnOf(from)) + widths[columnOf(from)]!, middle(from), left(columnOf(to)), middle(to)];
          const bend = (x1 + x2) / 2;
          const isNear = paths.some((path) => path.includes(active) && path.includes(from) && path.includes(to));
          const isSoft = spots.some((each) => each.id === to && each.kind.endsWith("dropped"));
          return <path key={name} class={`edge${isNear ? " near" : ""}${isSoft ? " soft" : ""}`} d={`M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}`} />;
        })}
        {spots.map(({ id, column, kind, label, told, piece }) => (
          <g
            key={id}
            class={`spot ${kind}${active && !near.has(id) ? " far" : ""}`}
            transform={`translate(${left(column)} ${middle(id) - TALL / 2})`}
            onMouseEnter={() => setActive(id)}
            onClick={() => piece && onPiece(piece)}
          >
            <rect
              width={widths[column]}
              height={TALL}
              rx={column % 2 ? TALL / 2 : 6}
              data-id={id}
              role="button"
              aria-label={told}
              tabIndex={id === first?.id ? 0 : -1}
              onFocus={() => (setActive(id), setStop(id))}
              onBlur={() => setActive("")}
              onKeyDown={(event) => piece && ["Enter", " "].includes(event.key) && (event.preventDefault(), onPiece(piece))}
            />
            {column === 3 ? <path class="tick" d="m8 13 3 3 6-7" /> : <text aria-hidden="true" x="8" y="17">{fit(label, widths[column]! - 14)}</text>}
          </g>
        ))}
      </svg>
      <p class="note told">{spots.find((each) => each.id === active)?.told ?? t("Point at a part to follow it, or use the arrow keys.", "指向任一部分即可查看其路径，也可使用方向键。")}</p>
    </div>
  );
}

// --- the pieces

const words = (text: string) => new Set(text.toLowerCase().match(/[a-z0-9]{3,}|[\u3400-\u9fff]{2}/g));

/** A piece's text with the sentence marked that shares most words with what the response says by it. */
function Quoted({ text, said }: { text: string; said: string }): JSX.Element {
  const sentences = text.split(/(?<=[.!?]\s)|(?<=[。！？\n])/);
  const wanted = words(said);
  const shares = sentences.map((one) => [...words(one)].filter((word) => wanted.has(word)).length);
  const most = Math.max(...shares);
  return (
    <blockquote>
      {sentences.map((one, index) => (most && shares[index] === most ? <mark key={index}>{one}</mark> : one))}
    </blockquote>
  );
}

function Card({ found, turn, isOpen }: { found: Found; turn: Turn; isOpen: boolean }): JSX.Element {
  const card = useRef<HTMLLIElement>(null);
  const piece = found.piece;
  const characters = Array.from(turn.text);
  const cited = turn.grounding!.citations.filter((each) => each.id === found.id);
  const said = cited.map((each) => characters.slice(each.start, each.end).join("")).join(" ");
  useLayoutEffect(() => {
    if (isOpen) card.current!.focus();
    if (isOpen) card.current!.scrollIntoView({ block: "nearest" });
  }, [isOpen]);
  return (
    <li class={`piece ${piece?.kind ?? "passage"}${isOpen ? " open" : ""}`} ref={card} tabIndex={-1} id={`piece-${found.id}`}>
      <p class="place">
        {found.number && <b class="number">{found.number}</b>}
        {(piece && place(piece)) || found.source}
      </p>
      <Quoted text={found.text || found.id} said={said} />
      <p class="note">{state(found)}</p>
      {found.need && <p class="note">{t("for", "用于")}: {found.need} ({found.source})</p>}
      {piece?.url && /^https?:/.test(piece.url) && (
        <a href={piece.url} rel="noreferrer noopener" target="_blank">
          {piece.url}
        </a>
      )}
    </li>
  );
}

/** The trace of a turn, asked for once. */
function useTrace(turn: Turn): { trace?: Trace; error: string } {
  const id = turn.grounding?.trace;
  const { data, error, status } = useLoaded<Trace>(turn.trace || !id ? "" : url`v1/traces/${id}`);
  if (data && !turn.trace) turn.trace = data;
  const gone = t("The service no longer has the stages of this response.", "服务已不再保存此回复的各阶段。");
  return { trace: turn.trace, error: status === 404 ? gone : error };
}

interface GroundsProps {
  turn: Turn;
  /** The piece that is opened. */
  active: string;
  onPiece: (id: string) => void;
}

/** What a response rests on: the graph, and every piece with what became of it. */
export function GroundsOf({ turn, active, onPiece }: GroundsProps): JSX.Element {
  const { trace, error } = useTrace(turn);
  if (!turn.grounding) return <p class="note">{t("Nothing is known of the grounds of this turn.", "没有此回合的依据信息。")}</p>;
  const grounds = groundsOf(turn.grounding, trace?.trace ?? []);
  const order = (each: Found) => each.number ?? (each.piece?.used ? 1000 : 2000);
  // What was found for several needs is shown once: for the first that it was kept for, if any.
  const ranked = grounds.found.toReversed().sort((a, b) => Number(a.isKept) - Number(b.isKept));
  const unique = [...new Map(ranked.map((each) => [each.id, each])).values()];
  const kept = unique.filter((each) => each.isKept).sort((a, b) => order(a) - order(b));
  const dropped = unique.filter((each) => !each.isKept && !kept.includes(each)).sort((a, b) => (b.probability ?? 0) - (a.probability ?? 0));
  const cards = (found: Found[]) => (
    <ul class="pieces">
      {found.map((each) => <Card key={each.id} found={each} turn={turn} isOpen={each.id === active} />)}
    </ul>
  );
  return (
    <div class="grounds">
      {trace && <p class="note">{totals(trace)}</p>}
      {grounds.needs.length + grounds.found.length > 0 ? (
        <Graph grounds={grounds} onPiece={onPiece} />
      ) : (
        <p class="note">{t("Nothing was needed: the response rests on the conversation alone.", "无需查找：回复只依据对话本身。")}</p>
      )}
      <Problem text={error} />
      {kept.length > 0 && <h2>{t(`Given to the response (${kept.length})`, `提供给回复（${kept.length}）`)}</h2>}
      {cards(kept)}
      {dropped.length > 0 && (
        <details key={String(dropped.some((each) => each.id === active))} open={dropped.some((each) => each.id === active)}>
          <summary>{t(`Found and dropped (${dropped.length})`, `找到但未采用（${dropped.length}）`)}</summary>
          {cards(dropped)}
        </details>
      )}
    </div>
  );
}

function totals({ method, seconds: whole, usage }: Trace): string {
  const tokens = usage.prompt_tokens + usage.completion_tokens;
  return [method, seconds(whole), t(`${usage.calls} calls`, `${usage.calls} 次调用`), t(`${tokens} tokens`, `${tokens} 个词元`)].join(" · ");
}

// --- the stages

/** Every stage in its time, with its tokens, its prompt as sent and the model's completion. */
export function Timeline({ turn }: { turn: Turn }): JSX.Element {
  const { trace, error } = useTrace(turn);
  if (!trace) return <p class="note">{error || t("Stages are shown once the response is there.", "回复完成后显示各阶段。")}</p>;
  const whole = Math.max(trace.seconds, ...trace.trace.map((each) => each.started + each.seconds)) || 1;
  return (
    <div class="timeline">
      <p class="note">{totals(trace)}</p>
      {trace.trace.map((each, index) => (
        <details key={index} class={each.outcome}>
          <summary>
            <span class="what">{stageName(each.stage)}</span>
            <span class="time">{seconds(each.seconds)}</span>
            <span class="track">
              <span style={{ left: `${(100 * each.started) / whole}%`, width: `${Math.max(1, (100 * each.seconds) / whole)}%` }} />
            </span>
          </summary>
          <p class="note">
            {[each.model, each.prompt, each.usage.calls > 0 && t(`${each.usage.prompt_tokens} + ${each.usage.completion_tokens} tokens`, `${each.usage.prompt_tokens} + ${each.usage.completion_tokens} 个词元`), each.outcome !== "ok" && each.outcome].filter(Boolean).join(" · ")}
          </p>
          <Problem text={each.error} />
          {each.notes.map((note) => <p class="note" key={note}>{note}</p>)}
          {each.messages.map((message, place) => (
            <div key={place}>
              <h2>{message.role}</h2>
              <pre tabIndex={0}>{message.content}</pre>
            </div>
          ))}
          {each.completion && <h2>{t("completion", "模型输出")}</h2>}
          {each.completion && <pre tabIndex={0}>{each.completion}</pre>}
          {!each.completion && Object.keys(each.output).length > 0 && <pre tabIndex={0}>{JSON.stringify(each.output, null, 1)}</pre>}
        </details>
      ))}
    </div>
  );
}
