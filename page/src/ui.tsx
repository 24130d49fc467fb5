/** What every page uses: the two languages, the state of the whole page, icons, and a few small parts. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { ApiError, request } from "./api";

// --- the state of the whole page; a change draws everything anew

export type Language = "en" | "zh";
export type Theme = "auto" | "light" | "dark";

const kept = JSON.parse(localStorage.getItem("dialore.page") ?? "{}");
export const app = {
  language: (kept.language ?? (navigator.language.startsWith("zh") ? "zh" : "en")) as Language,
  theme: (kept.theme ?? "auto") as Theme,
  model: (kept.model ?? "dialore") as string,
  models: [] as string[],
  /** The method of each model. */
  methods: {} as Record<string, string>,
  needsKey: false,
  error: "",
};
let redraw = () => {};
/** Draw everything anew, where what changed lies outside of components. */
export const draw = (): void => redraw();

/** Change the state of the whole page. */
export function change(patch: Partial<typeof app>): void {
  Object.assign(app, patch);
  const { language, theme, model } = app;
  localStorage.setItem("dialore.page", JSON.stringify({ language, theme, model }));
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  document.documentElement.dataset.theme = theme;
  redraw();
}

/** Draw a component anew whenever the state changes; for the one at the root. */
export function useApp(): void {
  const [, count] = useState(0);
  redraw = () => count((n) => n + 1);
}

/** The text in the language of the page: `t("Send", "发送")`. */
export function t(english: string, chinese: string): string {
  return app.language === "zh" ? chinese : english;
}

/** A model as people tell it from others: with its method, where its name does not say it. */
export function named(model: string): string {
  const method = app.methods[model] ?? "";
  return model.endsWith(method) ? model : `${model} (${method})`;
}

/** What is to be known where nothing is written, but shown as it was found. */
export function NoModel(): JSX.Element | null {
  if (app.methods[app.models[0]!] !== "lexical") return null;
  return (
    <p class="note">
      {t("No language model is set: responses show what was found. dialore serve takes one by --base-url and --model.", "未设置语言模型：回复只显示找到的知识。可用 dialore serve 的 --base-url 和 --model 指定。")}
    </p>
  );
}

// --- asking

/** Say what went wrong; where a key is wanted, ask for it. */
export function explain(error: unknown): string {
  if (error instanceof ApiError && error.status === 401) change({ needsKey: true });
  if (error instanceof TypeError) return t("The service cannot be reached.", "无法连接服务。");
  return error instanceof Error ? error.message : String(error);
}

export interface Loaded<T> {
  data?: T;
  error: string;
  status: number;
  reload: () => Promise<void>;
}

/** What a route gives, asked when the component is first drawn, when `path` changes and by `reload`. */
export function useLoaded<T>(path: string): Loaded<T> {
  const [found, setFound] = useState<{ of?: string; data?: T; error: string; status: number }>({ error: "", status: 0 });
  async function reload(): Promise<void> {
    if (!path) return;
    try {
      setFound({ of: path, data: await request<T>("GET", path), error: "", status: 200 });
    } catch (error) {
      setFound({ of: path, error: explain(error), status: error instanceof ApiError ? error.status : 0 });
    }
  }
  useEffect(() => void reload(), [path]);
  return found.of === path ? { ...found, reload } : { error: "", status: 0, reload };
}

// --- small parts

const PATHS = {
  attach: "M13 7.5 7.8 12.7a3 3 0 0 1-4.3-4.3L9 2.9a2 2 0 0 1 2.9 2.9L6.5 11.200a1 1 0 0 1-1.4-1.4L10 5",
  close: "m4 4 8 8m0-8-8 8",
  dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.500Z",
  edit: "m3 13 .6-2.8L11 2.800l2.2 2.2-7.4 7.400L3 13Z",
  file: "M4 2h5l3 3v9H4V2Zm5 0v3h3",
  key: "M10 6a2.5 2.5 0 1 0-2.4 3.200L9 8l1 1 1-1 1 1 1.5-1.500L12 6h-2Z",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6Zm0-4v1.500m0 11V15M1 8h1.500m11 0H15M3 3l1 1m8 8 1 1m0-10-1 1m-8 8-1 1",
  auto: "M8 2a6 6 0 1 0 0 12V2Zm0 0a6 6 0 0 1 0 12",
  history: "M8 2.500a5.500 5.500 0 1 1-5 3.200M3 2.500v3.300h3.300M8 5v3.200l2.200 1.400",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  good: "M5 14V7l3-5c1.200 0 1.800.8 1.500 2L9 6.500h4.500L12.500 13c-.2.6-.7 1-1.300 1H5Zm0 0H2.500V7H5",
  bad: "M5 2v7l3 5c1.200 0 1.800-.8 1.500-2L9 9.500h4.500L12.500 3c-.2-.6-.7-1-1.300-1H5Zm0 0H2.500v7H5",
  panel: "M2 3h12v10H2V3Zm7.5 0v10",
  plus: "M8 3v10M3 8h10",
  redo: "M13 8a5 5 0 1 1-1.7-3.700L13 6m0-3.500V6H9.5",
  send: "M8 13V3M3.5 7.5 8 3l4.5 4.5",
  stop: "M4.5 4.500h7v7h-7z",
  weave: "M2 5h5m4 0h3M2 11h3m4 0h5M5 2v5m0 4v3M11 2v3m0 4v5",
};

export function Icon({ name }: { name: keyof typeof PATHS }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

interface ActionProps {
  icon: keyof typeof PATHS;
  label: string;
  onClick: () => void;
  disabled?: boolean;
  pressed?: boolean;
}

/** A button with an icon alone; `label` is what it is called. */
export function Action({ icon, label, onClick, disabled, pressed }: ActionProps): JSX.Element {
  return (
    <button type="button" class="action" title={label} aria-label={label} {...{ onClick, disabled }} aria-pressed={pressed}>
      <Icon name={icon} />
    </button>
  );
}

/** A line that tells what went wrong, or nothing. */
export function Problem({ text, children }: { text: string; children?: ComponentChildren }): JSX.Element | null {
  if (!text) return null;
  return (
    <p class="problem" role="alert">
      {text} {children}
    </p>
  );
}

/** A choice of one, as a row of buttons. */
export function Tabs<T extends string>(props: {
  label: string;
  value: T;
  options: (readonly [T, string])[];
  onChange: (value: T) => void;
}): JSX.Element {
  return (
    <div class="tabs" role="group" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button type="button" key={value} aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {text}
        </button>
      ))}
    </div>
  );
}

/** A button that asks once more before it deletes. */
export function Delete(props: { path: string; body?: unknown; what: string; passages?: number; onDone: () => Promise<void> }): JSX.Element {
  const [asks, setAsks] = useState(false);
  const [error, setError] = useState("");
  async function go(): Promise<void> {
    try {
      await request("DELETE", props.path, props.body);
      await props.onDone();
    } catch (failure) {
      setError(explain(failure));
    }
    setAsks(false);
  }
  if (!asks)
    return (
      <>
        <Problem text={error} />
        <Action icon="close" label={`${t("Delete", "删除")}: ${props.what}`} onClick={() => setAsks(true)} />
      </>
    );
  return (
    <>
      <button type="button" class="plain warn" ref={(node) => node?.focus()} onClick={() => void go()}>
        {(props.passages ?? 1) > 1 ? t(`Delete all ${props.passages} passages`, `删除全部 ${props.passages} 段`) : t("Delete", "删除")}
      </button>
      <button type="button" class="plain" onClick={() => setAsks(false)}>{t("Keep", "保留")}</button>
    </>
  );
}

/** Give the user a file. */
export function download(name: string, text: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Seconds as people read them. */
export function seconds(value: number): string {
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
}
