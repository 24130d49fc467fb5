/** The page Compare: one history, answered by several models at once, each with its grounds. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { talk } from "./chat";
import type { Turn } from "./conversation";
import { GroundsOf } from "./grounds";
import { Written } from "./markdown";
import { Reply, answer, meta } from "./talk";
import { NoModel, app, draw, named, t } from "./ui";

/** The history so far and the answers to its last turn; they outlive a look at other pages. */
const round = { turns: [] as Turn[], answers: [] as Turn[], models: [] as string[] };

function ask(text: string): void {
  round.turns.push({ role: "user", text });
  round.answers = round.models.map((model) => answer(model, round.turns, talk.persona).turn);
  draw();
}

function startWith(turns: Turn[]): void {
  round.answers.forEach((each) => each.stop?.abort());
  Object.assign(round, { turns: [...turns], answers: [] });
  draw();
}

export function Compare(): JSX.Element {
  const [text, setText] = useState("");
  const isWriting = round.answers.some((each) => each.stop);
  // A user's turn that nobody has been chosen to answer is not gone on from.
  const isOpen = round.answers.length > 0;
  const other = app.models.find((each) => app.methods[each] !== app.methods[app.models[0]!]);
  if (!round.models.length) round.models = [...app.models.slice(0, 1), ...(other ? [other] : [])];
  function choose(model: string, isChosen: boolean): void {
    round.models = app.models.filter((each) => (each === model ? isChosen : round.models.includes(each)));
    draw();
  }
  function goOn(chosen: Turn): void {
    startWith([...round.turns, chosen]);
  }
  return (
    <div class="compare">
      <fieldset class="row">
        <legend class="unseen">{t("Models", "模型")}</legend>
        {app.models.map((model) => (
          <label class="chip" key={model}>
            <input type="checkbox" checked={round.models.includes(model)} disabled={isWriting} onChange={(event) => choose(model, event.currentTarget.checked)} />
            {named(model)}
          </label>
        ))}
        <span class="push" />
        {talk.turns.length > 0 && (
          <button type="button" class="plain" onClick={() => startWith(upToAnswer(talk.turns))}>{t("Take the history from Chat", "使用“对话”中的历史")}</button>
        )}
        <button type="button" class="plain" disabled={!round.turns.length} onClick={() => startWith([])}>{t("Start anew", "重新开始")}</button>
      </fieldset>
      <NoModel />
      {app.models.length > 0 && !other && app.methods[app.models[0]!] !== "lexical" && (
        <p class="note">{t("This service has one method alone; dialore.toml can name others.", "此服务只有一种方法；可在 dialore.toml 中指定更多。")}</p>
      )}
      {round.turns.length > 0 && (
        <ol class="history" aria-label={t("History", "历史")}>
          {round.turns.map((turn, index) => (
            <li key={index} class={turn.role}>
              <b>{turn.role === "user" ? t("You", "你") : turn.model}</b> {turn.role === "user" ? turn.text : <Written text={turn.text} />}
            </li>
          ))}
        </ol>
      )}
      {isOpen ? (
        <div class="columns" aria-busy={isWriting}>
          {round.answers.map((turn) => <Column key={turn.model} turn={turn} onGoOn={isWriting ? undefined : () => goOn(turn)} />)}
        </div>
      ) : (
        <form class="composer" onSubmit={(event) => (event.preventDefault(), ask(text.trim()), setText(""))}>
          <div class="box">
            <textarea
              rows={2}
              aria-label={t("Your message", "你的消息")}
              placeholder={t("Say something to all of them", "对所有模型说点什么")}
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
              onKeyDown={(event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && (event.preventDefault(), event.currentTarget.form!.requestSubmit())}
            />
            <button class="main" disabled={!text.trim() || !round.models.length}>{t("Ask", "提问")}</button>
          </div>
        </form>
      )}
    </div>
  );
}

function upToAnswer(turns: Turn[]): Turn[] {
  const whole = turns.filter((turn) => turn.text && !turn.stop);
  return whole.at(-1)?.role === "user" ? whole.slice(0, -1) : whole;
}

function Column({ turn, onGoOn }: { turn: Turn; onGoOn?: () => void }): JSX.Element {
  const [active, setActive] = useState({ piece: "", number: 0 });
  const [isOpen, setOpen] = useState(false);
  return (
    <section class="card" aria-label={turn.model}>
      <h2>{named(turn.model!)}</h2>
      <Reply turn={turn} active={active.number} onCite={({ id, number }) => (setActive({ piece: id, number }), setOpen(true))} />
      {!turn.stop && (
        <div class="row">
          <span class="note">{meta({ ...turn, model: undefined })}</span>
          <span class="push" />
          {turn.text && <button type="button" class="plain" disabled={!onGoOn} onClick={onGoOn}>{t("Go on with this", "以此继续")}</button>}
        </div>
      )}
      {turn.stop && <button type="button" class="plain" onClick={() => turn.stop?.abort()}>{t("Stop", "停止")}</button>}
      {turn.grounding && (
        <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>{t("Grounds", "依据")}</summary>
          {isOpen && <GroundsOf turn={turn} active={active.piece} onPiece={(piece) => setActive({ piece, number: 0 })} />}
        </details>
      )}
    </section>
  );
}
