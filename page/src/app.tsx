/** The frame: the pages by their routes, the model, the key, the language and the theme. */

import { type FunctionComponent, type JSX, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { Annotate } from "./annotate";
import { key, request } from "./api";
import { Chat } from "./chat";
import { Compare } from "./compare";
import { Knowledge } from "./knowledge";
import { Runs } from "./runs";
import { Icon, Problem, app, change, explain, named, t, useApp } from "./ui";
import "./page.css";

interface Page {
  name: string;
  title: () => string;
  View: FunctionComponent;
  /** Whether it answers by the model that the header chooses. */
  hasModel?: boolean;
  /** Whether it is there without a key. */
  isOpen?: boolean;
}

const PAGES: Page[] = [
  { name: "chat", title: () => t("Chat", "对话"), View: Chat, hasModel: true },
  { name: "compare", title: () => t("Compare", "比较"), View: Compare },
  { name: "knowledge", title: () => t("Knowledge", "知识"), View: Knowledge },
  { name: "runs", title: () => t("Runs", "实验"), View: Runs },
  { name: "annotate", title: () => t("Annotate", "标注"), View: Annotate, isOpen: true },
];

function pageOf(hash: string): Page {
  const name = /^#\/(\w+)/.exec(hash)?.[1];
  return PAGES.find((page) => page.name === name) ?? PAGES[0]!;
}

/** The pages of what this service does not have, as far as is known. */
const lacking = new Set(["runs", "annotate"]);

async function loadModels(): Promise<void> {
  for (const name of [...lacking]) {
    // Without a valid key (401) it is not known whether the service has it.
    const found = request("GET", `v1/${name}`).then(() => true, (error) => ![401, 404].includes(error.status));
    void found.then((isThere) => isThere && lacking.delete(name) && change({}));
  }
  try {
    const found = await request<{ data: { id: string; method: string }[] }>("GET", "v1/models");
    const models = found.data.map((each) => each.id);
    const methods = Object.fromEntries(found.data.map((each) => [each.id, each.method]));
    change({ models, methods, model: models.includes(app.model) ? app.model : models[0]!, needsKey: false, error: "" });
  } catch (error) {
    change({ error: explain(error) });
  }
}

function Frame(): JSX.Element {
  useApp();
  const [page, setPage] = useState(() => pageOf(location.hash));
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    void loadModels();
    const moved = () => {
      setPage(pageOf(location.hash));
      main.current?.focus();
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  document.title = `${page.title()} · Dialore`;
  const { View } = page;
  return (
    <>
      <header class="bar">
        <a class="skip" href={`#/${page.name}`} onClick={(event) => (event.preventDefault(), main.current?.focus())}>
          {t("Skip to the page", "跳到正文")}
        </a>
        <a class="name" href="#/chat">
          <Icon name="weave" /> dialore
        </a>
        <nav aria-label={t("Pages", "页面")}>
          {PAGES.filter((each) => !lacking.has(each.name) || each === page).map((each) => (
            <a key={each.name} href={`#/${each.name}`} aria-current={each === page ? "page" : undefined}>
              {each.title()}
            </a>
          ))}
        </nav>
        {page.hasModel && app.models.length > 0 && (
          <select
            class="model"
            aria-label={t("Model", "模型")}
            value={app.model}
            onChange={(event) => change({ model: event.currentTarget.value })}
          >
            {app.models.map((model) => (
              <option key={model} value={model}>{named(model)}</option>
            ))}
          </select>
        )}
        <Switches />
      </header>
      <main ref={main} tabIndex={-1} id={page.name}>
        <h1 class="unseen">{page.title()}</h1>
        {!app.needsKey ? <Problem text={app.error} /> : !page.isOpen && <KeyForm />}
        {(!app.needsKey || page.isOpen) && <View />}
      </main>
    </>
  );
}

const THEMES = ["auto", "light", "dark"] as const;

function Switches(): JSX.Element {
  const names = { auto: t("as the system", "跟随系统"), light: t("light", "浅色"), dark: t("dark", "深色") };
  const next = THEMES[(THEMES.indexOf(app.theme) + 1) % THEMES.length]!;
  const theme = `${t("Theme", "主题")}: ${names[app.theme]}`;
  return (
    <div class="switches">
      {key.get() && !app.needsKey && (
        <button
          type="button"
          class="action"
          title={t("Forget the key", "忘记密钥")}
          aria-label={t("Forget the key", "忘记密钥")}
          onClick={() => (key.set(""), void loadModels())}
        >
          <Icon name="key" />
        </button>
      )}
      <button
        type="button"
        class="action"
        lang={app.language === "en" ? "zh-CN" : "en"}
        onClick={() => change({ language: app.language === "en" ? "zh" : "en" })}
      >
        {app.language === "en" ? "中文" : "EN"}
      </button>
      <button type="button" class="action" title={theme} aria-label={theme} onClick={() => change({ theme: next })}>
        <Icon name={app.theme} />
      </button>
    </div>
  );
}

function KeyForm(): JSX.Element {
  const [value, setValue] = useState("");
  return (
    <form
      class="card key"
      onSubmit={(event) => {
        event.preventDefault();
        key.set(value.trim());
        void loadModels();
      }}
    >
      <h2>{t("This service wants a key", "此服务需要密钥")}</h2>
      <label>
        {t("Key", "密钥")}
        <input
          type="password"
          autocomplete="off"
          value={value}
          onInput={(event) => setValue(event.currentTarget.value)}
        />
      </label>
      <p class="note">{t("It is kept until this tab is closed.", "密钥保留到关闭此标签页为止。")}</p>
      <button class="main" disabled={!value.trim()}>
        {t("Go on", "继续")}
      </button>
      {key.get() && <Problem text={app.error} />}
    </form>
  );
}

change({});
render(<Frame />, document.getElementById("app")!);
