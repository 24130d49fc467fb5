/** Turns of a conversation: how one is answered, how it is shown, and how a conversation is written down. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";

import { type Begun, type Citation, type Message, type Piece, complete } from "./api";
import { type Conversation, InvalidConversation, type Origin, type Turn, readForeign } from "./conversation";
import { Written } from "./markdown";
import { draw, explain, seconds, t } from "./ui";

/** Begin an answer to what was said before; the turn grows as it comes. */
export function answer(model: string, before: Turn[], persona: string, conversation = ""): { turn: Turn; done: Promise<void> } {
  const stop = new AbortController();
  const began = performance.now();
  const turn: Turn = { role: "assistant", text: "", model, stages: [], draft: "", began, stop };
  const messages: Message[] = before.filter((each) => each.text.trim()).map((each) => ({ role: each.role, content: each.text }));
  if (persona.trim()) messages.unshift({ role: "system", content: persona });
  const on = {
    text: (text: string) => ((turn.text += text), draw()),
    draft: (text: string) => ((turn.draft += text), draw()),
    stage: (begun: Begun) => (turn.stages!.push(begun), draw()),
  };
  const done = complete(model, messages, conversation, on, stop.signal)
    .then((grounding) => void (turn.grounding = grounding))
    .catch((error) => void (turn.error = stop.signal.aborted ? t("Stopped.", "已停止。") : explain(error)))
    .finally(() => {
      turn.stop = undefined;
      turn.seconds = (performance.now() - began) / 1000;
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
  const button = (citation: Citation) => (
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
  );
  return (
    <>
      <Written text={turn.text} citations={turn.grounding?.citations} {...{ active, button }} />
      {turn.stop && <AtWork turn={turn} />}
      {turn.error && <p class="problem">{turn.error}</p>}
    </>
  );
}

/** What goes on while an answer is awaited: the draft, the stage at work, which of how many calls, the seconds. */
function AtWork({ turn }: { turn: Turn }): JSX.Element {
  useEffect(() => {
    const clock = setInterval(draw, 1000);
    return () => clearInterval(clock);
  }, []);
  const at = turn.stages?.at(-1);
  const passed = t(`${Math.round((performance.now() - turn.began!) / 1000)} s`, `${Math.round((performance.now() - turn.began!) / 1000)} 秒`);
  const step = at && at.step > 0 && at.steps > 1 && t(`${at.step} of ${at.steps}`, `第 ${at.step} 步，共 ${at.steps} 步`);
  return (
    <>
      {!turn.text && turn.draft && <div class="draft"><Written text={turn.draft} /></div>}
      <p class="stage">
        <span class="pulse" /> {[at ? stageName(at.stage) : t("asked", "已提问"), step, passed].filter(Boolean).join(" · ")}
      </p>
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
  return { persona, turns: turns.map(({ stop, stages, draft, began, ...turn }) => turn) };
}

/** A conversation as Markdown, each answer with its sources. */
export function markdown({ persona, turns }: Conversation): string {
  const said = turns.map((turn) => {
    if (turn.role === "user") return `**${t("You", "你")}:** ${turn.text}`;
    const citations = turn.grounding?.citations ?? [];
    const characters = Array.from(turn.text);
    for (const one of citations) characters[one.end - 1] += `[${one.number}]`;
    const sources = new Map(citations.map((one) => [one.number, `${one.number}. ${[place(one), one.text].filter(Boolean).join(": ")}`]));
    return [`**${turn.model}:** ${characters.join("")}`, [...sources].sort(([a], [b]) => a - b).map(([, line]) => line).join("\n")]
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

/** The conversation of such a fragment; throws if it is none. */
export async function unpacked(text: string): Promise<Conversation> {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
  const json = await through(bytes, new DecompressionStream("deflate-raw"));
  return opened(new TextDecoder().decode(json), "link");
}

/** The conversation of an exported file or a link; throws if it is none. */
export function opened(text: string, origin: Origin): Conversation {
  try {
    return readForeign(JSON.parse(text), origin);
  } catch (error) {
    const reason = error instanceof InvalidConversation ? `: ${error.field}` : "";
    throw new Error(t(`This is no conversation of Dialore${reason}.`, `这不是 Dialore 的对话${reason}。`));
  }
}
