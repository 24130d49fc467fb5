/** Conversations: their types, and the one schema by which those of links, files and the browser's storage are read. */

import type { Begun, Citation, Demands, Grounding, Piece, Trace } from "./api";

export interface Turn {
  role: "user" | "assistant";
  text: string;
  model?: string;
  /** The stages that have begun, in their order. */
  stages?: Begun[];
  /** Text that is streamed before it is known whether it becomes the response. */
  draft?: string;
  /** When it was requested. */
  began?: number;
  grounding?: Grounding;
  /** All stages, loaded on demand. */
  trace?: Trace;
  /** The user's feedback. */
  good?: boolean;
  error?: string;
  seconds?: number;
  /** Aborts the response while it is being written. */
  stop?: AbortController;
}

/** Where a conversation that others may have written was opened from. */
export type Origin = "link" | "file";

export interface Conversation {
  /** The id under which the service stores it, if the user consents. */
  id?: string;
  persona: string;
  turns: Turn[];
  origin?: Origin;
  /** The persona of a conversation from outside. It is not used before the user agrees. */
  offeredPersona?: string;
}

const MAX_TURNS = 2_000;
const MAX_ITEMS = 1_000;
const MAX_TEXT = 1_000_000;
const MAX_NAME = 4_000;
const MAX_ID = 500;
const PATH_SEGMENTS = new Set([".", ".."]);

type Fields = Record<string, unknown>;

/** A field that is missing or invalid; the message names it. */
export class InvalidConversation extends Error {
  constructor(readonly field: string) {
    super(field);
  }
}

/** Read untyped turns field by field; unknown fields are dropped. Throws InvalidConversation. */
function readTurns(value: unknown, withFeedback: boolean): Turn[] {
  return list(value, "turns", MAX_TURNS).map((item, index) => readTurn(item, `turns[${index}]`, withFeedback));
}

/**
 * Read a conversation that this page stored. Throws InvalidConversation.
 *
 * Feedback is kept; state of a running response (`stop`) and the trace are not stored.
 */
export function readStored(value: unknown): Conversation {
  const fields = record(value, "conversation");
  const origin = text(fields.origin, "origin", MAX_NAME);
  return {
    id: text(fields.id, "id", MAX_ID) || undefined,
    persona: text(fields.persona, "persona", MAX_TEXT),
    turns: readTurns(fields.turns ?? [], true),
    origin: origin === "link" || origin === "file" ? origin : undefined,
    offeredPersona: text(fields.offeredPersona, "offeredPersona", MAX_TEXT) || undefined,
  };
}

/**
 * Read a conversation from a link or a file, which anybody may have written. Throws InvalidConversation.
 *
 * Its persona is only offered. Feedback, traces and ids of conversations are dropped.
 */
export function readForeign(value: unknown, origin: Origin): Conversation {
  const fields = record(value, "conversation");
  return {
    id: undefined,
    persona: "",
    turns: readTurns(fields.turns, false),
    origin,
    offeredPersona: text(fields.persona, "persona", MAX_TEXT).trim() || undefined,
  };
}

function readTurn(value: unknown, field: string, withFeedback: boolean): Turn {
  const fields = record(value, field);
  const role = fields.role;
  if (role !== "user" && role !== "assistant") throw new InvalidConversation(`${field}.role`);
  if (typeof fields.text !== "string") throw new InvalidConversation(`${field}.text`);
  const content = text(fields.text, `${field}.text`, MAX_TEXT);
  const turn: Turn = { role, text: content };
  if (!isMissing(fields.model)) turn.model = text(fields.model, `${field}.model`, MAX_NAME);
  if (!isMissing(fields.error)) turn.error = text(fields.error, `${field}.error`, MAX_NAME);
  if (!isMissing(fields.seconds)) turn.seconds = number(fields.seconds, `${field}.seconds`);
  if (!isMissing(fields.grounding)) turn.grounding = readGrounding(fields.grounding, `${field}.grounding`, content);
  if (withFeedback && typeof fields.good === "boolean") turn.good = fields.good;
  return turn;
}

function readGrounding(value: unknown, field: string, content: string): Grounding {
  const fields = record(value, field);
  const length = Array.from(content).length;
  const citations = list(fields.citations ?? [], `${field}.citations`, MAX_ITEMS);
  const knowledge = list(fields.knowledge ?? [], `${field}.knowledge`, MAX_ITEMS);
  return {
    trace: identifier(fields.trace, `${field}.trace`),
    method: text(fields.method, `${field}.method`, MAX_NAME),
    citations: citations.map((item, index) => readCitation(item, `${field}.citations[${index}]`, length)),
    demands: isMissing(fields.demands) ? null : readDemands(fields.demands, `${field}.demands`),
    knowledge: knowledge.map((item, index) => readPiece(item, `${field}.knowledge[${index}]`)),
  };
}

function readCitation(value: unknown, field: string, length: number): Citation {
  const fields = record(value, field);
  const [start, end] = [number(fields.start, `${field}.start`), number(fields.end, `${field}.end`)];
  const isSpan = Number.isInteger(start) && Number.isInteger(end) && start <= end && end <= length;
  if (!isSpan) throw new InvalidConversation(`${field}.end`);
  return { ...readPiece(value, field), number: number(fields.number, `${field}.number`), start, end };
}

function readPiece(value: unknown, field: string): Piece {
  const fields = record(value, field);
  const piece: Piece = {
    id: text(fields.id, `${field}.id`, MAX_NAME),
    kind: text(fields.kind, `${field}.kind`, MAX_NAME),
    source: text(fields.source, `${field}.source`, MAX_NAME),
    text: text(fields.text, `${field}.text`, MAX_TEXT),
  };
  for (const name of ["title", "section", "file", "page", "url"] as const) {
    if (!isMissing(fields[name])) piece[name] = text(fields[name], `${field}.${name}`, MAX_NAME);
  }
  if (!isMissing(fields.score)) piece.score = number(fields.score, `${field}.score`, -Infinity);
  if (typeof fields.used === "boolean") piece.used = fields.used;
  return piece;
}

function readDemands(value: unknown, field: string): Demands {
  const fields = record(value, field);
  const needs = (name: keyof Demands) =>
    list(fields[name] ?? [], `${field}.${name}`, MAX_ITEMS).map((item) => text(item, `${field}.${name}`, MAX_TEXT));
  return { explicit: needs("explicit"), implicit: needs("implicit"), maintained: needs("maintained"), extended: needs("extended") };
}

const isMissing = (value: unknown): value is undefined | null => value === undefined || value === null;

function record(value: unknown, field: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new InvalidConversation(field);
  return value as Fields;
}

function list(value: unknown, field: string, maxItems: number): unknown[] {
  if (!Array.isArray(value) || value.length > maxItems) throw new InvalidConversation(field);
  return value;
}

function text(value: unknown, field: string, maxChars: number): string {
  if (isMissing(value)) return "";
  if (typeof value === "number" && Number.isFinite(value)) return String(value);
  if (typeof value !== "string" || value.length > maxChars) throw new InvalidConversation(field);
  return value;
}

/** An id that can be a segment of a path: browsers resolve "." and "..", encoded or not. */
function identifier(value: unknown, field: string): string {
  const id = text(value, field, MAX_ID);
  if (PATH_SEGMENTS.has(id)) throw new InvalidConversation(field);
  return id;
}

function number(value: unknown, field: string, minimum = 0): number {
  if (typeof value !== "number" || !Number.isFinite(value) || value < minimum) throw new InvalidConversation(field);
  return value;
}
