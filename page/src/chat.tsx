/** The page Chat: the conversation, what it is written with, and beside it the grounds of a response. */

import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { type Added, type Trace, USER, request, upload, url } from "./api";
import { type Conversation, type Turn, readStored } from "./conversation";
import { Feedback } from "./feedback";
import { GroundsOf, Timeline } from "./grounds";
import { Reply, answer, markdown, meta, opened, packed, plain, unpacked } from "./talk";
import { Consent, Memory, type Remembered } from "./memory";
import { Action, Delete, Icon, NoModel, Problem, Tabs, app, download, draw, explain, t, useLoaded } from "./ui";

const KEPT = "dialore.chat";
const LONGEST_LINK = 16000;
type Tab = "grounds" | "stages" | "setup";

/** The conversation; it outlives a look at other pages, and loading this one anew. */
export const talk: Conversation = stored();

/** The conversation that this tab stored, or a new one if there is none that can be read. */
function stored(): Conversation {
  try {
    const conversation = readStored(JSON.parse(sessionStorage.getItem(KEPT) ?? "{}"));
    return { ...conversation, id: conversation.id ?? newId() };
  } catch (error) {
    console.warn("dialore: the stored conversation cannot be read", error);
    return { id: newId(), persona: "", turns: [] };
  }
}

function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function keep(): void {
  const turns = plain(talk).turns.map(({ trace, ...turn }) => turn);
  const { id, persona, origin, offeredPersona } = talk;
  sessionStorage.setItem(KEPT, JSON.stringify({ id, persona, origin, offeredPersona, turns }));
}

/** Say something in place of everything from `index` on; nothing to say asks for the answer anew. */
async function say(text: string, index: number): Promise<void> {
  talk.turns.slice(index).forEach((turn) => turn.stop?.abort());
  talk.turns.splice(index);
  if (text) talk.turns.push({ role: "user", text });
  const { turn, done } = answer(app.model, [...talk.turns], talk.persona, talk.id);
  talk.turns.push(turn);
  draw();
  await done;
  keep();
}

function start(conversation: Conversation): void {
  talk.turns.forEach((turn) => turn.stop?.abort());
  Object.assign(talk, { id: newId(), origin: undefined, offeredPersona: undefined }, withoutMissing(conversation));
  keep();
  draw();
}

function withoutMissing(conversation: Conversation): Partial<Conversation> {
  return Object.fromEntries(Object.entries(conversation).filter(([, value]) => value !== undefined));
}

/** The persona for another conversation: what the user wrote, but not what came with a link or a file. */
const ownPersona = (): string => (talk.origin ? "" : talk.persona);

export function Chat(): JSX.Element {
  const [tab, setTab] = useState<Tab>("grounds");
  const [isOpen, setOpen] = useState(false);
  const [chosen, setChosen] = useState<number>();
  const [active, setActive] = useState({ piece: "", number: 0 });
  const [told, setTold] = useState("");
  const log = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const panel = useRef<HTMLElement>(null);
  const last = talk.turns.findLastIndex((turn) => turn.role === "assistant" && turn.grounding);
  const shown = chosen !== undefined && talk.turns[chosen] ? chosen : last;
  const writing = talk.turns.find((turn) => turn.stop);

  useEffect(() => void openShared(), []);
  useEffect(() => {
    if (isAtEnd.current) log.current!.scrollTop = log.current!.scrollHeight;
  });
  async function openShared(): Promise<void> {
    const shared = /^#\/chat\?c=(.+)$/.exec(location.hash)?.[1];
    if (!shared) return;
    history.replaceState(null, "", "#/chat");
    await attempt(async () => start(await unpacked(shared)));
  }
  async function attempt(work: () => Promise<string | void>, of = ""): Promise<void> {
    try {
      setTold((await work()) ?? "");
    } catch (error) {
      setTold(of + explain(error));
    }
  }
  function began(): void {
    setChosen(undefined);
    isAtEnd.current = true;
    log.current!.focus();
  }
  function show(index: number, what: Tab, piece = "", number = 0): void {
    setChosen(index);
    setTab(what);
    setActive({ piece, number });
    setOpen(true);
    if (!piece) panel.current?.focus();
  }
  function send(text: string, index = talk.turns.length): void {
    isAtEnd.current = true;
    setChosen(undefined);
    setActive({ piece: "", number: 0 });
    setTold("");
    void say(text, index);
  }
  async function take(files: FileList | null): Promise<void> {
    for (const file of files ?? []) {
      setTold(t(`Reading ${file.name} …`, `正在读取 ${file.name} …`));
      await attempt(async () => {
        const { passages, replaced, rejects, notices } = await upload(file);
        const instead = replaced ? t(", in place of the earlier one", "（取代了先前的版本）") : "";
        const many = passages === 1 ? t("1 passage", "1 个段落") : t(`${passages} passages`, `${passages} 个段落`);
        const known = t(`${file.name} is known now${instead}: ${many}. Ask about it.`, `已读入 ${file.name}${instead}：${many}。可以提问了。`);
        return [known, ...rejects, ...notices].join(" · ");
      }, `${file.name}: `);
    }
  }

  return (
    <div class={`chat${isOpen ? " with" : ""}`} onKeyDown={(event) => event.key === "Escape" && setOpen(false)}>
      <section
        class="talk"
        aria-label={t("Conversation", "对话")}
        onDragOver={(event) => event.preventDefault()}
        onDrop={(event) => (event.preventDefault(), void take(event.dataTransfer?.files ?? null))}
      >
        <Tools isOpen={isOpen} attempt={attempt} onPanel={() => setOpen(!isOpen)} onStart={began} />
        {talk.origin && <Foreign />}
        <div
          class="log"
          role="log"
          aria-label={t("What was said", "已说内容")}
          aria-busy={!!writing}
          tabIndex={0}
          ref={log}
          onScroll={({ currentTarget: at }) => (isAtEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < 60)}
        >
          {talk.turns.length === 0 && <Welcome onSetup={() => (setTab("setup"), setOpen(true))} />}
          {talk.turns.map((turn, index) => turn.role === "user" ? (
            <Said key={index} turn={turn} onEdit={(text) => send(text, index)} />
          ) : (
            <article class={`turn reply${index === shown && isOpen ? " shown" : ""}`} key={index} aria-label={t("Response", "回复")}>
              <Reply turn={turn} active={index === shown ? active.number : 0} onCite={(citation) => show(index, "grounds", citation.id, citation.number)} />
              {!turn.stop && (
                <footer>
                  {turn.grounding && (
                    <button type="button" class="why" onClick={() => show(index, "grounds")}>
                      <Icon name="weave" /> {t("Why this?", "为什么这样说？")}
                    </button>
                  )}
                  <Action icon="redo" label={t(`Answer anew with ${app.model}`, `用 ${app.model} 重新生成`)} onClick={() => send("", index)} />
                  <Feedback turn={turn} />
                  <span class="note">{meta(turn)}</span>
                </footer>
              )}
            </article>
          ))}
        </div>
        <Composer told={told} writing={writing} onSend={send} onFiles={take} />
      </section>
      <aside class="panel" ref={panel} tabIndex={-1} aria-label={t("Grounds and settings", "依据与设置")} hidden={!isOpen}>
        <div class="row head">
          <Tabs
            label={t("Shown beside the conversation", "对话旁显示")}
            value={tab}
            options={[["grounds", t("Grounds", "依据")], ["stages", t("Stages", "阶段")], ["setup", t("Setup", "设置")]]}
            onChange={setTab}
          />
          <span class="push" />
          <Action icon="close" label={t("Close", "关闭")} onClick={() => setOpen(false)} />
        </div>
        <div class="body">
          {tab === "setup" ? (
            <Setup />
          ) : shown < 0 ? (
            <p class="note">{t("Once there is a response, this shows what it rests on.", "有了回复之后，这里显示其依据。")}</p>
          ) : tab === "grounds" ? (
            <GroundsOf key={shown} turn={talk.turns[shown]!} active={active.piece} onPiece={(piece) => setActive({ piece, number: numberOf(shown, piece) })} />
          ) : (
            <Timeline key={shown} turn={talk.turns[shown]!} />
          )}
        </div>
      </aside>
    </div>
  );
}

function numberOf(index: number, piece: string): number {
  return talk.turns[index]?.grounding?.citations.find((each) => each.id === piece)?.number ?? 0;
}

/** Says where a conversation from outside comes from, and offers its persona. */
function Foreign(): JSX.Element {
  const persona = talk.offeredPersona;
  const source = talk.origin === "link" ? t("a link", "链接") : t("a file", "文件");
  function decide(isAccepted: boolean): void {
    if (isAccepted) talk.persona = persona!;
    talk.offeredPersona = undefined;
    keep();
    draw();
  }
  return (
    <section class="foreign card" aria-label={t("Conversation from outside", "外来的对话")}>
      <p>{t(`Opened from ${source}: this service has not checked who wrote it.`, `从${source}打开：此服务未核实其内容由谁写成。`)}</p>
      {persona && (
        <>
          <p>{t("It comes with instructions for the assistant, which are not used unless you agree:", "其中附有给助手的指示，经你同意才会使用：")}</p>
          <blockquote tabIndex={0}>{persona}</blockquote>
          <div class="row">
            <button type="button" class="plain" onClick={() => decide(true)}>{t("Use them", "使用")}</button>
            <button type="button" class="main" onClick={() => decide(false)}>{t("Leave them out", "不使用")}</button>
          </div>
        </>
      )}
    </section>
  );
}

// --- what is said

function Said({ turn, onEdit }: { turn: Turn; onEdit: (text: string) => void }): JSX.Element {
  const [draft, setDraft] = useState<string>();
  if (draft === undefined) {
    return (
      <article class="turn asked" aria-label={t("You", "你")}>
        <Action icon="edit" label={t("Edit this turn", "编辑此回合")} onClick={() => setDraft(turn.text)} />
        <p class="said">{turn.text}</p>
      </article>
    );
  }
  return (
    <form
      class="turn edit"
      onSubmit={(event) => (event.preventDefault(), setDraft(undefined), onEdit(draft.trim()))}
      onKeyDown={(event) => event.key === "Escape" && (event.stopPropagation(), setDraft(undefined))}
    >
      <textarea aria-label={t("Your turn", "你的话")} rows={3} value={draft} ref={(area) => area?.focus()} onInput={(event) => setDraft(event.currentTarget.value)} />
      <div class="row">
        <span class="note push">{t("What follows it is dropped.", "其后的内容将被丢弃。")}</span>
        <button type="button" class="plain" onClick={() => setDraft(undefined)}>{t("Cancel", "取消")}</button>
        <button class="main" disabled={!draft.trim()}>{t("Send", "发送")}</button>
      </div>
    </form>
  );
}

function Welcome({ onSetup }: { onSetup: () => void }): JSX.Element {
  return (
    <div class="welcome">
      <h2>{t("Talk, and see why", "对话，并看到依据")}</h2>
      <p>
        {t(
          "Every response shows what it needed to know, where that was looked for, and what it rests on.",
          "每条回复都显示它需要哪些知识、在何处查找，以及依据什么。",
        )}
      </p>
      <p class="note">
        {t("Drop a file here and ask about it a second later, or ", "把文件拖到这里即可提问，或")}
        <button type="button" class="link" onClick={onSetup}>{t("say who the assistant is", "设定助手的身份")}</button>
        {t(".", "。")}
      </p>
      <NoModel />
    </div>
  );
}

interface ComposerProps {
  told: string;
  writing?: Turn;
  onSend: (text: string) => void;
  onFiles: (files: FileList | null) => Promise<void>;
}

function Composer({ told, writing, onSend, onFiles }: ComposerProps): JSX.Element {
  const [text, setText] = useState("");
  const picker = useRef<HTMLInputElement>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    area.current!.style.height = "auto";
    area.current!.style.height = `${Math.min(area.current!.scrollHeight + 2, 200)}px`;
  }, [text]);
  function submit(event: Event): void {
    event.preventDefault();
    if (writing || !text.trim()) return;
    onSend(text.trim());
    setText("");
  }
  return (
    <form class="composer" onSubmit={submit}>
      <p class="note" role="status">{told}</p>
      <div class="box">
        <Action icon="attach" label={t("Upload a file that is to be known", "上传文件作为知识")} onClick={() => picker.current!.click()} />
        <input type="file" hidden multiple ref={picker} onChange={({ currentTarget }) => void onFiles(currentTarget.files).then(() => (currentTarget.value = ""))} />
        <textarea
          ref={area}
          rows={1}
          aria-label={t("Your message", "你的消息")}
          placeholder={t("Say something", "说点什么")}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && submit(event)}
        />
        {writing ? (
          <button type="button" class="send" aria-label={t("Stop", "停止")} onClick={() => writing.stop?.abort()}>
            <Icon name="stop" />
          </button>
        ) : (
          <button class="send" aria-label={t("Send", "发送")} disabled={!text.trim()}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}

// --- the conversation as a whole

interface ToolsProps {
  isOpen: boolean;
  attempt: (work: () => Promise<string | void>) => Promise<void>;
  onPanel: () => void;
  onStart: () => void;
}

function Tools({ isOpen, attempt, onPanel, onStart }: ToolsProps): JSX.Element {
  const menu = useRef<HTMLDivElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  async function exported(): Promise<void> {
    for (const turn of talk.turns) {
      if (turn.grounding?.trace) turn.trace ??= await request<Trace>("GET", url`v1/traces/${turn.grounding.trace}`).catch(() => undefined);
    }
    download("conversation.json", JSON.stringify(plain(talk), null, 1), "application/json");
  }
  async function shared(): Promise<string> {
    const link = `${location.href.split("#")[0]}#/chat?c=${await packed(talk)}`;
    if (link.length > LONGEST_LINK) return t("This is too long for a link; export it as JSON.", "内容过长，无法放入链接；请导出为 JSON。");
    await navigator.clipboard.writeText(link);
    return t("The link is copied. It holds the conversation itself.", "链接已复制，其中包含整个对话。");
  }
  async function openFile(files: FileList | null): Promise<void> {
    if (files?.[0]) start(opened(await files[0].text(), "file"));
  }
  const item = (text: string, work: () => Promise<string | void>, needsTurns = true) => (
    <button type="button" disabled={needsTurns && !talk.turns.length} onClick={() => (menu.current!.hidePopover(), void attempt(work))}>
      {text}
    </button>
  );
  return (
    <div class="tools row" onKeyDown={(event) => event.key === "Escape" && event.stopPropagation()}>
      <Action icon="plus" label={t("New conversation", "新对话")} onClick={() => start({ persona: ownPersona(), turns: [] })} disabled={!talk.turns.length && !talk.origin} />
      <Earlier attempt={attempt} onStart={onStart} />
      <Menu icon="more" label={t("Share and export", "分享与导出")} name="share" at={menu}>
        {item(t("Copy a link", "复制链接"), shared)}
        {item(t("Export as JSON", "导出 JSON"), exported)}
        {item(t("Export as Markdown", "导出 Markdown"), async () => download("conversation.md", markdown(talk), "text/markdown"))}
        {item(t("Open an exported file", "打开已导出的文件"), async () => picker.current!.click(), false)}
      </Menu>
      <input type="file" accept=".json" hidden ref={picker} onChange={(event) => void attempt(() => openFile(event.currentTarget.files))} />
      <span class="push" />
      <Action icon="panel" label={t("Grounds and settings", "依据与设置")} pressed={isOpen} onClick={onPanel} />
    </div>
  );
}

interface MenuProps {
  icon: "more" | "history";
  label: string;
  name: string;
  at: RefObject<HTMLDivElement | null>;
  onOpen?: () => void;
  children: ComponentChildren;
}

/** A button that opens a card; the browser closes it by Escape and by a click elsewhere. */
function Menu({ icon, label, name, at, onOpen, children }: MenuProps): JSX.Element {
  return (
    <>
      <button type="button" class="action" title={label} aria-label={label} popovertarget={name}>
        <Icon name={icon} />
      </button>
      <div id={name} class="menu card" popover="auto" role="group" aria-label={label} tabIndex={-1} ref={at} onToggle={(event) => event.newState === "open" && onOpen?.()}>
        {children}
      </div>
    </>
  );
}

interface Earlier {
  data: { id: string; kept: string; title: string }[];
}

/** The conversations that the service keeps, to go on with or to delete; nothing where it keeps none. */
function Earlier({ attempt, onStart }: Pick<ToolsProps, "attempt" | "onStart">): JSX.Element | null {
  const kept = useLoaded<Earlier>(`v1/conversations?user=${USER}`);
  const memory = useLoaded<Remembered>(`v1/memory?user=${USER}`);
  const card = useRef<HTMLDivElement>(null);
  if (kept.status !== 200) return null;
  const found = kept.data!.data;
  async function open(id: string, title: string): Promise<string> {
    const path = url`v1/conversations?user=${USER}&id=${id}`;
    const { messages } = await request<{ messages: (Turn & { content: string })[] }>("GET", path);
    const turns = messages.map(({ role, content, grounding }) => ({ role, text: content, grounding }));
    start({ ...readStored({ id, turns }), persona: ownPersona() });
    card.current!.hidePopover();
    onStart();
    return t(`Opened: ${title}`, `已打开：${title}`);
  }
  async function deleted(id: string): Promise<void> {
    if (id === talk.id) start({ persona: ownPersona(), turns: [] });
    await kept.reload();
    card.current!.focus();
  }
  return (
    <Menu icon="history" label={t("Earlier conversations", "以往的对话")} name="earlier" at={card} onOpen={() => void Promise.all([kept.reload(), memory.reload()])}>
      {memory.data && !memory.data.consents && (
        <>
          <p class="note">{t("Conversations are kept here once you agree to it.", "经你同意后，对话会保存在这里。")}</p>
          <Consent {...memory} />
        </>
      )}
      {memory.data?.consents && !found.length && <p class="note">{t("None is kept yet.", "还没有保存对话。")}</p>}
      <ul class="kept">
        {found.map(({ id, title, kept }) => (
          <li class="row" key={id}>
            <button type="button" class="title" aria-current={id === talk.id ? "true" : undefined} onClick={() => void attempt(() => open(id, title))}>
              <span>{title}</span>
              <time class="note" dateTime={kept}>{new Date(kept).toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" })}</time>
            </button>
            <Delete path={url`v1/conversations?user=${USER}&id=${id}`} what={title} onDone={() => deleted(id)} />
          </li>
        ))}
      </ul>
    </Menu>
  );
}

// --- persona, files, memory

function Setup(): JSX.Element {
  const memory = useLoaded<Remembered>(`v1/memory?user=${USER}`);
  return (
    <div class="setup">
      <section>
        <h2>{t("Who the assistant is", "助手的身份")}</h2>
        <label>
          {t("A sentence a line. What is no description is an instruction.", "每行一句。不是描述的句子作为指示。")}
          <textarea
            rows={4}
            placeholder={t("You are Ada, a barista by the harbour.\nYou must answer briefly.", "你是港口边的咖啡师小雅。\n回答要简短。")}
            value={talk.persona}
            onInput={(event) => ((talk.persona = event.currentTarget.value), keep())}
          />
        </label>
      </section>
      <Files />
      {memory.status === 200 && (
        <section>
          <h2>{t("Memory", "记忆")}</h2>
          <Memory {...memory} />
        </section>
      )}
    </div>
  );
}

function Files(): JSX.Element {
  const { data, error, reload } = useLoaded<{ data: Added[] }>("v1/knowledge/documents");
  return (
    <section>
      <h2>{t("Documents that were added", "已添加的文档")}</h2>
      {!data?.data.length && <p class="note">{t("None yet.", "暂无。")}</p>}
      <Problem text={error} />
      <ul class="kept">
        {data?.data.map(({ id, file, passages }) => (
          <li key={id} class="row">
            <span>{file || id} <small class="note">{t(`${passages} passages`, `${passages} 段`)}</small></span>
            <span class="push" />
            <Delete path={url`v1/knowledge/documents/${id}`} what={file || id} passages={passages} onDone={reload} />
          </li>
        ))}
      </ul>
    </section>
  );
}
