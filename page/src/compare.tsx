import type { JSX } from "preact";

import { t } from "./ui";

export function Compare(): JSX.Element {
  return <p class="note">{t("This page is not there yet.", "此页尚未完成。")}</p>;
}
