/** What the agent knows: searched, browsed, added to, mended and forgotten; and which responses used it. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { type Added, type Piece, USER, request, upload, url } from "./api";
import { Memory, type Remembered } from "./memory";
import { Action, Delete, Icon, Problem, Tabs, draw, explain, t, useLoaded } from "./ui";
import "./desk.css";

type Source = "documents" | "graph" | "persona";

interface Known extends Piece {
  /** The id by which it can be deleted; null where it is of a source that the service's file names. */
  added: string | null;
  head?: string;
  relation?: string;
  tail?: string;
  weight?: number;
  graph?: string;
  provenance?: string;
  index?: string;
}

interface Use {
  trace: string;
  made: string;
  asked: string;
  text: string;
  used: string[];
}

/** What stays when the page is left and come back to. */
const view = { source: "documents" as Source | "memory", query: "" };
const LIMIT = 50;

export function Knowledge(): JSX.Element {
  const memory = useLoaded<Remembered>(`v1/memory?user=${USER}`);
  const names = { documents: t("Documents", "文档"), graph: t("Facts", "事实"), persona: t("Persona", "人设"), memory: t("Memory", "记忆") };
  const shown = (Object.keys(names) as (keyof typeof names)[]).filter((name) => name !== "memory" || memory.status === 200);
  const choose = (source: typeof view.source) => (Object.assign(view, { source, query: "" }), draw());
  return (
    <div class="desk">
      <Tabs label={t("Kind of knowledge", "知识类型")} value={view.source} options={shown.map((name) => [name, names[name]] as const)} onChange={choose} />
      {view.source === "memory" ? <Memory {...memory} /> : <Pieces key={view.source} source={view.source} />}
    </div>
  );
}

function Pieces({ source }: { source: Source }): JSX.Element {
  const [found, setFound] = useState<Known[]>([]);
  const [adding, setAdding] = useState(false);
  const add = useRef<HTMLButtonElement>(null);
  const [state, setState] = useState({ more: false, error: "", loading: true });
  const asked = useRef(0);
  const uses = useLoaded<{ data: Use[] }>("v1/knowledge/uses");
  const documents = useLoaded<{ data: Added[] }>(source === "documents" ? "v1/knowledge/documents" : "");
  const { query } = view;

  async function load(offset = 0): Promise<void> {
    const number = ++asked.current;
    const params = new URLSearchParams({ source, q: query, offset: String(offset), limit: String(LIMIT) });
    try {
      const page = await request<{ data: Known[]; more: boolean }>("GET", `v1/knowledge/pieces?${params}`);
      if (number !== asked.current) return;
      setFound((before) => [...before.slice(0, offset), ...page.data]);
      setState({ more: page.more, error: "", loading: false });
    } catch (error) {
      if (number === asked.current) setState({ more: false, error: explain(error), loading: false });
    }
  }
  useEffect(() => {
    const waiting = setTimeout(() => void load(), query ? 250 : 0);
    return () => clearTimeout(waiting);
  }, [query]);
  const changed = async () => void (await Promise.all([load(), documents.reload()]));
  const additions = { documents: t("Add a text", "添加文本"), graph: t("Add a fact", "添加事实"), persona: t("Add a sentence", "添加句子") };
  const ask = (text: string) => ((view.query = text), draw());

  return (
    <>
      <div class="row find">
        <input
          type="search"
          value={query}
          maxLength={1000}
          aria-label={t("Search", "搜索")}
          placeholder={source === "graph" ? t("A concept, e.g. dog", "概念，例如“狗”") : t("Search", "搜索")}
          onInput={(event) => ask(event.currentTarget.value)}
        />
        {source === "documents" && <Upload onDone={changed} />}
        {!adding && (
          <button type="button" class="plain" ref={add} onClick={() => setAdding(true)}>
            <Icon name="plus" /> {additions[source]}
          </button>
        )}
      </div>
      {adding && <div class="card"><Editor source={source} onDone={changed} onClose={() => (setAdding(false), setTimeout(() => add.current?.focus()))} /></div>}
      {documents.data?.data.some((each) => each.file) && (
        <details class="card">
          <summary>{t("Files that were uploaded", "已上传的文件")} <span class="note">{documents.data.data.filter((each) => each.file).length}</span></summary>
          <ul class="lines">
            {documents.data.data.filter((each) => each.file).map((each) => (
              <li class="row" key={each.id}>
                <Icon name="file" /> {each.file} <span class="note">{t(`${each.passages} passages`, `${each.passages} 段`)}</span>
                <Delete path={url`v1/knowledge/documents/${each.id}`} what={each.file} onDone={changed} />
              </li>
            ))}
          </ul>
        </details>
      )}
      <Problem text={state.error} />
      <p class="note" role="status">
        {state.loading ? t("Loading…", "加载中…") : found.length || state.error ? "" : query ? t("Nothing is found.", "没有找到。") : t("There is nothing yet.", "还没有内容。")}
      </p>
      <ul class="pieces">
        {found.map((piece) => {
          const passages = documents.data?.data.find((each) => each.id === piece.added)?.passages;
          const editable = piece.added !== null && (source !== "documents" || (!piece.file && passages === 1));
          const used = uses.data?.data.filter((each) => each.used.includes(piece.id)) ?? [];
          return <One key={`${piece.id} ${piece.index ?? piece.graph ?? ""}`} {...{ source, piece, passages, editable, used, ask }} onDone={changed} />;
        })}
      </ul>
      {state.more && (
        <button type="button" class="plain" onClick={() => void load(found.length)}>
          {t("More", "更多")}
        </button>
      )}
    </>
  );
}

interface OneProps {
  source: Source;
  piece: Known;
  /** Of the document that it is a part of. */
  passages?: number;
  editable: boolean;
  used: Use[];
  ask: (text: string) => void;
  onDone: () => Promise<void>;
}

function One({ source, piece, passages, editable, used, ask, onDone }: OneProps): JSX.Element {
  const [editing, setEditing] = useState(false);
  if (editing) return <li class="card"><Editor {...{ source, piece }} onDone={onDone} onClose={() => setEditing(false)} /></li>;
  const { added } = piece;
  const where = [piece.title, piece.section, piece.file, piece.page && t(`page ${piece.page}`, `第 ${piece.page} 页`), piece.url];
  const weight = piece.weight !== undefined && t(`weight ${piece.weight}`, `权重 ${piece.weight}`);
  const part = !piece.file && (passages ?? 1) > 1 && t(`one of ${passages} passages of a text, which is changed by adding it anew`, `长文本的 ${passages} 段之一，需重新添加才能修改`);
  const origin = [...where, part, piece.index ?? piece.graph, piece.provenance, weight].filter((each, at, all) => each && each !== "added" && all.indexOf(each) === at);
  return (
    <li class={`card piece ${piece.kind}`}>
      {piece.head === undefined ? (
        <p class="quoted">{piece.text}</p>
      ) : (
        <p class="quoted">
          <button type="button" class="concept" onClick={() => ask(piece.head!)}>{piece.head}</button>{" "}
          <span class="relation">{piece.relation}</span>{" "}
          <button type="button" class="concept" onClick={() => ask(piece.tail!)}>{piece.tail}</button>
        </p>
      )}
      <div class="row note">
        <span class="tag">{added === null ? t("from the settings", "来自配置") : t("added", "已添加")}</span>
        {origin.length > 0 && <span class="where">{origin.join(" · ")}</span>}
        {added !== null && (
          <span class="row push">
            {editable && <Action icon="edit" label={`${t("Edit", "编辑")}: ${piece.text}`} onClick={() => setEditing(true)} />}
            <Delete {...deleting(source, added)} what={piece.text} passages={passages} onDone={onDone} />
          </span>
        )}
      </div>
      {used.length > 0 && (
        <details class="note">
          <summary>{t(`Used by ${used.length} of the latest responses`, `最近的回复中有 ${used.length} 条用到它`)}</summary>
          <ul class="lines">
            {used.slice(0, 20).map((each) => (
              <li key={each.trace}>
                <time dateTime={each.made}>{new Date(each.made).toLocaleString(document.documentElement.lang)}</time>
                <p>{each.asked}</p>
                <p class="quoted">{each.text}</p>
              </li>
            ))}
          </ul>
        </details>
      )}
    </li>
  );
}

function deleting(source: Source, added: string): { path: string; body?: unknown } {
  if (source === "persona") return { path: "v1/knowledge/persona", body: { sentences: [added] } };
  return { path: source === "graph" ? url`v1/knowledge/facts/${added}` : url`v1/knowledge/documents/${added}` };
}

function Upload({ onDone }: { onDone: () => Promise<void> }): JSX.Element {
  const [told, setTold] = useState({ error: "", busy: false });
  const field = useRef<HTMLInputElement>(null);
  async function send(files: FileList): Promise<void> {
    setTold({ error: "", busy: true });
    const left: string[] = [];
    for (const file of files) {
      try {
        const { rejects, notices } = await upload(file);
        left.push(...rejects, ...notices);
      } catch (failure) {
        left.push(`${file.name}: ${explain(failure)}`);
      }
    }
    field.current!.value = "";
    await onDone();
    setTold({ error: left.join(" · "), busy: false });
  }
  return (
    <>
      <input ref={field} class="unseen" type="file" multiple tabIndex={-1} aria-label={t("Files", "文件")} onChange={(event) => void send(event.currentTarget.files!)} />
      <button type="button" class="plain" disabled={told.busy} onClick={() => field.current!.click()}>
        <Icon name="attach" /> {told.busy ? t("Uploading…", "上传中…") : t("Upload files", "上传文件")}
      </button>
      <Problem text={told.error} />
    </>
  );
}

/** The form for a new piece, or for one that is to be another. */
function Editor(props: { source: Source; piece?: Known; onDone: () => Promise<void>; onClose: () => void }): JSX.Element {
  const { source, piece } = props;
  const [error, setError] = useState("");
  const first = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  useLayoutEffect(() => first.current?.focus(), []); // before the next event: a later focus would take what is typed into another field
  async function save(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target as HTMLFormElement)) as Record<string, string>;
    const add = () => {
      if (source === "graph") return request("POST", "v1/knowledge/facts", { facts: [{ ...given, weight: Number(given.weight) }] });
      if (source === "persona") return request("POST", "v1/knowledge/persona", { sentences: [given.text] });
      return request("POST", "v1/knowledge/documents", given);
    };
    const old = piece && deleting(source, piece.added!);
    try {
      // A fact may stay the same but for its weight: then the old one has to go first, else the new one comes first.
      const isSame = ENDS.every((name) => given[name]?.trim().toLowerCase() === piece?.[name]?.toLowerCase());
      if (old && isSame && source === "graph") await request("DELETE", old.path);
      const made = (await add()) as { id?: string };
      const stays = source === "graph" ? isSame : made.id === piece?.added || given.text?.trim() === piece?.added;
      if (old && !stays) await request("DELETE", old.path, old.body);
      await props.onDone();
      props.onClose();
    } catch (failure) {
      setError(explain(failure));
    }
  }
  const title = [piece?.title, piece?.section].filter(Boolean).join(" > ");
  return (
    <form class="editor" onSubmit={(event) => void save(event)} onKeyDown={(event) => event.key === "Escape" && props.onClose()}>
      {source === "graph" && (
        <div class="fields">
          <label>{t("Head", "头概念")}<input ref={first} type="text" name="head" required maxLength={300} defaultValue={piece?.head} /></label>
          <label>{t("Relation", "关系")}<input type="text" name="relation" required maxLength={300} list="relations" defaultValue={piece?.relation ?? "RelatedTo"} /></label>
          <label>{t("Tail", "尾概念")}<input type="text" name="tail" required maxLength={300} defaultValue={piece?.tail} /></label>
          <label>{t("Weight", "权重")}<input type="number" name="weight" required min="0.01" max="1000" step="any" defaultValue={piece?.weight ?? 1} /></label>
          <datalist id="relations">{RELATIONS.map((name) => <option key={name} value={name} />)}</datalist>
        </div>
      )}
      {source === "persona" && (
        <label>{t("A sentence about the assistant, in the first person", "关于助手的一句话，用第一人称")}<input ref={first} type="text" name="text" required maxLength={300} defaultValue={piece?.text} /></label>
      )}
      {source === "documents" && (
        <>
          <label>{t("Text", "文本")}<textarea ref={first} name="text" required rows={5} defaultValue={piece?.text} /></label>
          <div class="fields">
            <label>{t("Title", "标题")}<input type="text" name="title" maxLength={300} defaultValue={title} /></label>
            <label>{t("Address", "网址")}<input type="text" name="url" maxLength={2000} defaultValue={piece?.url} /></label>
          </div>
        </>
      )}
      <Problem text={error} />
      <div class="row">
        <button class="main">{t("Save", "保存")}</button>
        <button type="button" class="plain" onClick={props.onClose}>{t("Cancel", "取消")}</button>
      </div>
    </form>
  );
}

const ENDS = ["head", "relation", "tail"] as const;
const RELATIONS = ["RelatedTo", "IsA", "PartOf", "HasA", "UsedFor", "CapableOf", "AtLocation", "Causes", "HasProperty", "MadeOf", "Desires", "MotivatedByGoal"];
