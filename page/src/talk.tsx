/** Turns of a conversation: how one is answered, how it is shown, and how a conversation is written down. */

import type { JSX } from "preact";

import { type Citation, type Grounding, type Message, type Piece, type Trace, complete } from "./api";
import { draw, explain, seconds, t } from "./ui";

export interface Turn {
  role: "user" | "assistant";
  text: string;
  model?: string;
  /** The stages that have begun, in their order. */
  stages?: string[];
  grounding?: Grounding;
  /** Every stage, once somebody has asked for it. */
  trace?: Trace;
  error?: string;
  seconds?: number;
  /** What stops it, while it is being written. */
  stop?: AbortController;
}

export interface Conversation {
  /** What the service keeps it under, of a user who consents. */
  id?: string;
  persona: string;
  turns: Turn[];
}

/** Begin an answer to what was said before; the turn grows as it comes. */
export function answer(model: string, before: Turn[], persona: string, conversation = ""): { turn: Turn; done: Promise<void> } {
  const stop = new AbortController();
  const turn: Turn = { role: "assistant", text: "", model, stages: [], stop };
  const messages: Message[] = before.filter((each) => each.text.trim()).map((each) => ({ role: each.role, content: each.text }));
  if (persona.trim()) messages.unshift({ role: "system", content: persona });
  const started = performance.now();
  const on = {
    text: (text: string) => ((turn.text += text), draw()),
    stage: (name: string) => (turn.stages!.push(name), draw()),
  };
  const done = complete(model, messages, conversation, on, stop.signal)
    .then((grounding) => void (turn.grounding = grounding))
    .catch((error) => void (turn.error = stop.signal.aborted ? t("Stopped.", "已停止。") : explain(error)))
    .finally(() => {
      turn.stop = undefined;
      turn.seconds = (performance.now() - started) / 1000;
      draw();
    });
  return { turn, done };
}

const STAGES: Record<string, string> = {
  persona: "人设", needs: "所需知识", draft: "草稿", selection: "选取", write: "撰写", check: "核对", response: "回复",
};

/** A stage's name for readers. */
export function stageName(name: string): string {
  const [, kind, source] = /^(look-up|first-look)-(.+)$/.exec(name) ?? [];
  if (source) return kind === "look-up" ? t(`look-up: ${source}`, `查找：${source}`) : t(`first look: ${source}`, `初查：${source}`);
  return t(name.replaceAll("-", " "), STAGES[name] ?? name);
}

/** The text in segments, each with the citations that cover it and those that end after it. */
function segments(text: string, citations: Citation[]): { text: string; over: number[]; after: Citation[] }[] {
  const characters = Array.from(text);
  const edges = new Set([0, characters.length, ...citations.flatMap((each) => [each.start, each.end])]);
  const sorted = [...edges].sort((a, b) => a - b);
  return sorted.slice(1).map((end, index) => ({
    text: characters.slice(sorted[index], end).join(""),
    over: citations.filter((each) => each.start < end && each.end >= end).map((each) => each.number),
    after: citations.filter((each) => each.end === end),
  }));
}

/** Where a piece stands: title, section, file and page. */
export function place(piece: Piece): string {
  const page = piece.page && t(`p. ${piece.page}`, `第 ${piece.page} 页`);
  const file = piece.file !== piece.title && piece.file;
  return [piece.title, piece.section, file, page].filter(Boolean).join(" › ");
}

interface ReplyProps {
  turn: Turn;
  /** The number whose spans are marked. */
  active?: number;
  onCite: (citation: Citation) => void;
}

/** An answer as it comes: its text with numbered citations, the stage at work, what went wrong. */
export function Reply({ turn, active, onCite }: ReplyProps): JSX.Element {
  const stage = turn.stop && turn.stages?.at(-1);
  return (
    <>
      <p class="said">
        {segments(turn.text, turn.grounding?.citations ?? []).map((each, index) => (
          <span key={index}>
            {active && each.over.includes(active) ? <mark>{each.text}</mark> : each.text}
            {each.after.map((citation) => (
              <button
                type="button"
                class="cite"
                key={citation.number}
                aria-label={t(`Source ${citation.number}: ${place(citation) || citation.text}`, `来源 ${citation.number}：${place(citation) || citation.text}`)}
                aria-pressed={citation.number === active}
                onClick={() => onCite(citation)}
              >
                {citation.number}
              </button>
            ))}
          </span>
        ))}
      </p>
      {turn.stop && (
        <p class="stage">
          <span class="pulse" /> {stage ? stageName(stage) : t("asked", "已提问")}
        </p>
      )}
      {turn.error && <p class="problem">{turn.error}</p>}
    </>
  );
}

/** Who answered, and in what time. */
export function meta(turn: Turn): string {
  return [turn.model ?? turn.grounding?.method, turn.seconds !== undefined && seconds(turn.seconds)].filter(Boolean).join(" · ");
}

// --- written down

/** A conversation without what is only for this moment. */
export function plain({ persona, turns }: Conversation): Conversation {
  return { persona, turns: turns.map(({ stop, stages, ...turn }) => turn) };
}

/** A conversation as Markdown, each answer with its sources. */
export function markdown({ persona, turns }: Conversation): string {
  const said = turns.map((turn) => {
    if (turn.role === "user") return `**${t("You", "你")}:** ${turn.text}`;
    const citations = turn.grounding?.citations ?? [];
    const text = segments(turn.text, citations).map((each) => each.text + each.after.map((one) => `[${one.number}]`).join(""));
    const sources = new Map(citations.map((one) => [one.number, `${one.number}. ${[place(one), one.text].filter(Boolean).join(": ")}`]));
    return [`**${turn.model}:** ${text.join("")}`, [...sources].sort(([a], [b]) => a - b).map(([, line]) => line).join("\n")]
      .filter(Boolean)
      .join("\n\n");
  });
  return [persona && `> ${persona.replaceAll("\n", "\n> ")}`, ...said].filter(Boolean).join("\n\n") + "\n";
}

async function through(bytes: Uint8Array<ArrayBuffer>, stream: CompressionStream | DecompressionStream): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

/** A conversation as the fragment of a link: no server sees it. */
export async function packed(conversation: Conversation): Promise<string> {
  const { persona, turns } = plain(conversation);
  const short = turns.map(({ trace, grounding, ...turn }) => ({
    ...turn,
    grounding: grounding && { ...grounding, knowledge: grounding.knowledge.filter((piece) => piece.used) },
  }));
  const bytes = await through(new TextEncoder().encode(JSON.stringify({ persona, turns: short })), new CompressionStream("deflate-raw"));
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_");
}

/** The conversation of such a fragment. */
export async function unpacked(text: string): Promise<Conversation> {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
  return read(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))));
}

/** The conversation of an exported file; throws where it is none. */
export function read(text: string): Conversation {
  const found = JSON.parse(text);
  const isTurn = (turn: Turn) => ["user", "assistant"].includes(turn?.role) && typeof turn.text === "string";
  if (!Array.isArray(found?.turns) || !found.turns.every(isTurn)) {
    throw new Error(t("This is no conversation of Dialore.", "这不是 Dialore 的对话。"));
  }
  return { persona: String(found.persona ?? ""), turns: found.turns };
}
