/** What the service's routes take and give, and how they are asked. */

export interface Piece {
  id: string;
  kind: string;
  source: string;
  text: string;
  title?: string;
  section?: string;
  file?: string;
  page?: string;
  url?: string;
  score?: number;
  used?: boolean;
}

/** A span of the response, in characters (not UTF-16 units), and the piece that it rests on. */
export interface Citation extends Piece {
  number: number;
  start: number;
  end: number;
}

export interface Demands {
  explicit: string[];
  implicit: string[];
  maintained: string[];
  extended: string[];
}

export interface Grounding {
  trace: string;
  method: string;
  citations: Citation[];
  demands: Demands | null;
  knowledge: Piece[];
}

export interface StageTrace {
  stage: string;
  model: string;
  outcome: "ok" | "repaired" | "unparsed" | "failed";
  started: number;
  seconds: number;
  prompt: string;
  messages: { role: string; content: string }[];
  completion: string;
  output: Record<string, unknown>;
  summary: string;
  usage: { calls: number; prompt_tokens: number; completion_tokens: number; cached: number };
  notes: string[];
  error: string;
}

export interface Trace {
  method: string;
  status: string;
  seconds: number;
  usage: StageTrace["usage"];
  trace: StageTrace[];
}

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const KEY = "dialore.key";
/** The name under which the page asks; where the service has keys, the key's own user counts. */
export const USER = "page";
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value: string) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/**
 * Build a URL of the service; every value is encoded, so that it stays within its segment or parameter.
 *
 * Throws for values that no encoding keeps in place: browsers resolve "." and ".." in paths, and without a value the
 * URL names all items.
 */
export function url(parts: TemplateStringsArray, ...values: string[]): string {
  let before = "";
  for (const [index, value] of values.entries()) {
    before += parts[index];
    const isSafe = value !== "" && (before.includes("?") || (value !== "." && value !== ".."));
    if (!isSafe) throw new Error(`"${value}" is no id`);
  }
  return String.raw({ raw: parts }, ...values.map(encodeURIComponent));
}

async function ask(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
  const isForm = body instanceof FormData;
  if (body !== undefined && !isForm) headers["Content-Type"] = "application/json";
  const sent = body === undefined || isForm ? (body as FormData | undefined) : JSON.stringify(body);
  const answer = await fetch(path, { method, headers, body: sent, signal });
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new ApiError(answer.status, told?.error?.message ?? `${answer.status} ${answer.statusText}`);
  }
  return answer;
}

/** Ask a route for JSON; throws ApiError with the service's own words. */
export async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  return (await ask(method, path, body)).json();
}

export interface Added {
  id: string;
  file: string;
  passages: number;
}

/** A file that is known now: whether in place of an earlier one, and what of it was left out or assumed. */
export interface Uploaded extends Added {
  replaced: boolean;
  rejects: string[];
  notices: string[];
}

/** Make a file known, in place of an earlier one of its name. */
export async function upload(file: File): Promise<Uploaded> {
  const form = new FormData();
  form.append("file", file);
  return request<Uploaded>("POST", "v1/knowledge/files", form);
}

/** The data of each server-sent event of an answer, until `[DONE]`. */
export async function* events<T>(answer: Response): AsyncGenerator<T> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop()!;
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data[0] === "[DONE]") return;
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
}

/** A stage that has begun, and of how many calls in a row it belongs to which. */
export interface Begun {
  stage: string;
  step: number;
  steps: number;
}

interface Chunk extends Partial<Begun> {
  choices: { delta: { content?: string }; finish_reason: string | null }[];
  draft?: string;
  grounding?: Grounding;
  error?: { message: string };
}

/** Stream a chat completion, kept as a turn of that conversation if it has an id; gives its grounding. */
export async function complete(
  model: string,
  messages: Message[],
  conversation: string,
  on: { text: (text: string) => void; draft: (text: string) => void; stage: (begun: Begun) => void },
  signal: AbortSignal,
): Promise<Grounding | undefined> {
  const body = { model, messages, stream: true, user: USER, metadata: conversation ? { conversation } : undefined };
  let grounding: Grounding | undefined;
  for await (const chunk of events<Chunk>(await ask("POST", "v1/chat/completions", body, signal))) {
    if (chunk.error) throw new ApiError(502, chunk.error.message);
    if (chunk.stage) on.stage({ stage: chunk.stage, step: chunk.step ?? 0, steps: chunk.steps ?? 0 });
    if (chunk.draft) on.draft(chunk.draft);
    const text = chunk.choices[0]?.delta.content;
    if (text) on.text(text);
    grounding ??= chunk.grounding;
  }
  return grounding;
}
