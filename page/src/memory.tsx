/** What is remembered of whoever uses the page: his consent, each statement, and how to forget it. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { USER, request } from "./api";
import { Delete, type Loaded, Problem, explain, t } from "./ui";

export interface Remembered {
  consents: boolean;
  data: { id: string; text: string; said: string; turn?: string; expires?: string }[];
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

export function Memory(loaded: Loaded<Remembered>): JSX.Element {
  const { data, reload } = loaded;
  const day = (moment: string) => new Date(moment).toLocaleDateString(document.documentElement.lang, { dateStyle: "medium" });
  return (
    <>
      <Consent {...loaded} />
      {data?.consents && !data.data.length && <p class="note">{t("Nothing is remembered yet.", "还没有记住任何内容。")}</p>}
      <ul class="pieces">
        {data?.data.map((each) => (
          <li class="card piece" key={each.id}>
            <p class="quoted">{each.text}</p>
            <div class="row note">
              <span>{t(`said on ${day(each.said)}`, `说于 ${day(each.said)}`)}{each.turn && each.turn !== each.text && `: “${each.turn}”`}</span>
              {each.expires && <span>{t(`kept until ${day(each.expires)}`, `保留到 ${day(each.expires)}`)}</span>}
              <span class="row push">
                <Delete path={`v1/memory/${encodeURIComponent(each.id)}?user=${USER}`} what={each.text} onDone={reload} />
              </span>
            </div>
          </li>
        ))}
      </ul>
      {(data?.data.length ?? 0) > 1 && (
        <div class="row note">{t("Forget all:", "全部忘记：")} <Delete path={`v1/memory?user=${USER}`} what={t("everything", "一切")} onDone={reload} /></div>
      )}
    </>
  );
}
