/** What the user thinks of a response: a thumb, and for a bad one the reason and a better answer. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { USER, request, url } from "./api";
import type { Turn } from "./conversation";
import { Action, Problem, draw, explain, t } from "./ui";

export function Feedback({ turn }: { turn: Turn }): JSX.Element | null {
  const [isOpen, setOpen] = useState(false);
  const [problem, setProblem] = useState("");
  const trace = turn.grounding?.trace;
  if (!trace) return null;
  async function attempt(work: () => Promise<unknown>, good?: boolean): Promise<void> {
    try {
      await work();
      turn.good = good;
      setProblem("");
    } catch (failure) {
      setProblem(explain(failure));
    }
    draw();
  }
  const say = (good: boolean, reason = "", better = "") =>
    attempt(() => request("POST", "v1/feedback", { user: USER, trace, good, reason, better }), good);
  const takeBack = () => (setOpen(false), attempt(() => request("DELETE", url`v1/feedback/${trace}?user=${USER}`)));
  function submit(event: Event): void {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    setOpen(false);
    void say(false, String(form.get("reason")).trim(), String(form.get("better")).trim());
  }
  return (
    <>
      <Action icon="good" label={t("A good response", "回复得好")} pressed={turn.good === true} onClick={() => void (turn.good ? takeBack() : (setOpen(false), say(true)))} />
      <Action
        icon="bad"
        label={t("A bad response", "回复得不好")}
        pressed={turn.good === false}
        onClick={() => void (turn.good === false ? takeBack() : (setOpen(true), say(false)))}
      />
      {isOpen && (
        <form class="feedback" onSubmit={submit} onKeyDown={(event) => event.key === "Escape" && (event.stopPropagation(), setOpen(false))}>
          <label>
            {t("What is wrong?", "哪里不好？")}
            <input type="text" name="reason" maxLength={4000} ref={(field) => field?.focus()} />
          </label>
          <label>
            {t("A better answer", "更好的回答")}
            <textarea name="better" rows={3} maxLength={20000} />
          </label>
          <div class="row">
            <button type="button" class="plain" onClick={() => setOpen(false)}>{t("Not now", "以后再说")}</button>
            <button class="main">{t("Send", "发送")}</button>
          </div>
        </form>
      )}
      <Problem text={problem} />
    </>
  );
}
