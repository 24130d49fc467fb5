/** What is remembered of whoever uses the page: their consent, each statement with its time, and how to correct and forget it. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { USER, request, url } from "./api";
import { Action, Delete, type Loaded, Problem, download, explain, t, useLoaded } from "./ui";

interface Statement {
  id: string;
  text: string;
  said: string;
  turn?: string;
  holds_from?: string;
  holds_until?: string;
  replaces?: string;
  doubts?: string;
  expires?: string;
}

export interface Remembered {
  consents: boolean;
  data: Statement[];
}

/** The switch of consent; whoever takes it back is asked once more, since that deletes everything. */
export function Consent({ data, error, reload }: Loaded<Remembered>): JSX.Element {
  const [problem, setProblem] = useState("");
  const [asks, setAsks] = useState(false);
  async function say(consents: boolean): Promise<void> {
    setAsks(false);
    try {
      await request("PUT", "v1/memory/consent", { user: USER, consents });
      await reload();
      setProblem("");
    } catch (failure) {
      setProblem(explain(failure));
    }
  }
  return (
    <>
      <label class="row consent">
        <input
          type="checkbox"
          checked={data?.consents ?? false}
          onClick={(event) => data?.consents && (event.preventDefault(), setAsks(true))}
          onChange={() => void say(true)}
        />
        {t("Remember me: what I say of myself, and my conversations", "记住我：我谈到自己的内容，以及我的对话")}
      </label>
      {asks && (
        <div class="row">
          <span class="note">{t("Everything that is kept of you is deleted.", "为你保存的一切都将被删除。")}</span>
          <button type="button" class="plain warn" ref={(node) => node?.focus()} onClick={() => void say(false)}>{t("Forget me", "忘记我")}</button>
          <button type="button" class="plain" onClick={() => setAsks(false)}>{t("Keep", "保留")}</button>
        </div>
      )}
      <Problem text={problem || error} />
    </>
  );
}

const day = (moment: string) => new Date(moment).toLocaleDateString(document.documentElement.lang, { dateStyle: "medium" });

/** What holds, on wish what held before or on a day; each statement can be corrected and deleted, all of them saved. */
export function Memory(loaded: Loaded<Remembered>): JSX.Element {
  const [view, setView] = useState({ history: false, on: "" });
  const [problem, setProblem] = useState("");
  const all = `v1/memory?user=${USER}&history=true`;
  const then = view.on && url`v1/memory?user=${USER}&as_of=${new Date(`${view.on}T23:59:59.999`).toISOString()}`;
  const other = useLoaded<Remembered>(then || (view.history ? all : ""));
  const { data } = then || view.history ? other : loaded;
  async function reload(): Promise<void> {
    await Promise.all([loaded.reload(), other.reload()]);
  }
  async function save(): Promise<void> {
    try {
      const lines = (await request<Remembered>("GET", all)).data.map(({ id, ...kept }) => `${JSON.stringify(kept)}\n`);
      download("memory.jsonl", lines.join(""), "application/jsonl");
      setProblem("");
    } catch (failure) {
      setProblem(explain(failure));
    }
  }
  return (
    <>
      <Consent {...loaded} reload={reload} />
      {loaded.data?.consents && (
        <div class="row note">
          <label class="row">
            <input type="checkbox" checked={view.history} onChange={(event) => setView({ history: event.currentTarget.checked, on: "" })} />
            {t("Also what held before", "也显示以前的情况")}
          </label>
          <label class="row">
            {t("As it was on", "截至")} <input type="date" value={view.on} onInput={(event) => setView({ history: false, on: event.currentTarget.value })} />
          </label>
          <button type="button" class="plain push" onClick={() => void save()}>{t("Save as a file", "保存为文件")}</button>
        </div>
      )}
      <Problem text={problem || other.error} />
      {data?.consents && !data.data.length && <p class="note">{view.on ? t("Nothing that held then is remembered.", "没有记住当时的情况。") : t("Nothing is remembered yet.", "还没有记住任何内容。")}</p>}
      <ul class="pieces">{data?.data.map((each) => <One key={each.id} statement={each} all={data.data} onDone={reload} />)}</ul>
      {(data?.data.length ?? 0) > 1 && (
        <div class="row note">{t("Forget all:", "全部忘记：")} <Delete path={`v1/memory?user=${USER}`} what={t("everything", "一切")} onDone={reload} /></div>
      )}
    </>
  );
}

interface OneProps {
  statement: Statement;
  all: Statement[];
  onDone: () => Promise<void>;
}

function One({ statement, all, onDone }: OneProps): JSX.Element {
  const [editing, setEditing] = useState(false);
  if (editing) return <li class="card"><Editor {...{ statement, onDone }} onClose={() => setEditing(false)} /></li>;
  const { id, text, turn, said, holds_from: from, holds_until: until, expires } = statement;
  const by = all.find((other) => other.replaces === id)?.text;
  const doubted = all.find((other) => other.id === statement.doubts && !other.holds_until)?.text;
  return (
    <li class={`card piece${until ? " past" : ""}`}>
      <p class="quoted">{text}</p>
      {until && <p class="note">{t(`Held from ${day(from ?? said)} to ${day(until)}`, `${day(from ?? said)}至${day(until)}`)}{by && t(`, then: “${by}”`, `，之后：“${by}”`)}</p>}
      {!until && from && <p class="note">{t(`Holds since ${day(from)}`, `始于${day(from)}`)}</p>}
      {doubted && !until && <p class="note">{t(`May contradict “${doubted}”: you will be asked which holds.`, `可能与“${doubted}”矛盾：会向你确认。`)}</p>}
      <div class="row note">
        <span>{t(`said on ${day(said)}`, `说于 ${day(said)}`)}{turn && turn !== text && `: “${turn}”`}</span>
        {expires && <span>{t(`kept until ${day(expires)}`, `保留到 ${day(expires)}`)}</span>}
        <span class="row push">
          <Action icon="edit" label={`${t("Edit", "编辑")}: ${text}`} onClick={() => setEditing(true)} />
          <Delete path={url`v1/memory/${id}?user=${USER}`} what={text} onDone={onDone} />
        </span>
      </div>
    </li>
  );
}

function Editor({ statement, onDone, onClose }: Omit<OneProps, "all"> & { onClose: () => void }): JSX.Element {
  const [error, setError] = useState("");
  const dates = { holds_from: statement.holds_from, holds_until: statement.holds_until };
  async function save(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target as HTMLFormElement)) as Record<string, string>;
    const changes: Record<string, string | null> = { user: USER, text: given.text ?? null };
    for (const [name, before] of Object.entries(dates))
      if (given[name] !== local(before)) changes[name] = given[name] ? new Date(`${given[name]}T00:00:00`).toISOString() : null;
    try {
      await request("PATCH", url`v1/memory/${statement.id}`, changes);
      onClose();
      await onDone();
    } catch (failure) {
      setError(explain(failure));
    }
  }
  return (
    <form class="editor" onSubmit={(event) => void save(event)} onKeyDown={(event) => event.key === "Escape" && onClose()}>
      <label>{t("Statement", "内容")}<input type="text" name="text" required maxLength={300} defaultValue={statement.text} ref={(node) => node?.focus()} /></label>
      <div class="fields">
        <label>{t("Holds since", "始于")}<input type="date" name="holds_from" defaultValue={local(dates.holds_from)} /></label>
        <label>{t("Held until", "止于")}<input type="date" name="holds_until" defaultValue={local(dates.holds_until)} /></label>
      </div>
      <Problem text={error} />
      <div class="row">
        <button class="main">{t("Save", "保存")}</button>
        <button type="button" class="plain" onClick={onClose}>{t("Cancel", "取消")}</button>
      </div>
    </form>
  );
}

/** The day of a moment where the browser is, as a field for dates has it. */
const local = (moment?: string) => (moment ? new Date(moment).toLocaleDateString("sv") : "");
