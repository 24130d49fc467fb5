/** Text with Markdown, as elements: never as HTML, which stays the text that it is. Citations stand where they end. */

import { fromMarkdown } from "mdast-util-from-markdown";
import type { Nodes, Parents, Root } from "mdast";
import { type ComponentChildren, type JSX, h } from "preact";

import type { Citation } from "./api";

interface WrittenProps {
  text: string;
  citations?: Citation[];
  /** The number whose spans are marked. */
  active?: number;
  /** The button of a citation. */
  button?: (citation: Citation) => JSX.Element;
}

const TAGS: Partial<Record<Nodes["type"], string>> = {
  paragraph: "p", strong: "strong", emphasis: "em", listItem: "li", blockquote: "blockquote", thematicBreak: "hr", break: "br",
};

const MAX_DEPTH = 100;

/** Return the syntax tree, or undefined if it is nested too deeply to be drawn. */
function parse(text: string): Root | undefined {
  try {
    const root = fromMarkdown(text);
    return isDeeper(root, MAX_DEPTH) ? undefined : root;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

function isDeeper(node: Nodes, depth: number): boolean {
  if (!("children" in node)) return false;
  return depth === 0 || node.children.some((child) => isDeeper(child, depth - 1));
}

export function Written({ text, citations = [], active, button }: WrittenProps): JSX.Element {
  const root = parse(text);
  if (!root) return <div class="said written"><p>{text}</p></div>;
  // Spans count characters, the parser UTF-16 units.
  const units = [0];
  for (const character of text) units.push(units.at(-1)! + character.length);
  const spans = citations.map((each) => ({ citation: each, start: units[each.start] ?? text.length, end: units[each.end] ?? text.length }));
  const leaves: [number, number][] = [];
  // A span that ends at marks of Markdown, outside of every text, ends in the text before them.
  const endIn = (end: number) => leaves.find(([from, to]) => from < end && end <= to) ?? leaves.findLast(([, to]) => to <= end) ?? leaves[0];
  (function collect(node: Nodes): void {
    if ("children" in node) node.children.forEach(collect);
    else if (node.type !== "break" && node.type !== "thematicBreak") leaves.push(placeOf(node));
  })(root);

  function leaf(node: Nodes, value: string): ComponentChildren {
    const [from, to] = placeOf(node);
    const isExact = text.slice(from, to) === value;
    const ending = spans.filter(({ end }) => endIn(end)?.[0] === from);
    const inside = (at: number) => (isExact ? Math.min(Math.max(at - from, 0), value.length) : at >= to ? value.length : 0);
    const cuts = new Set([0, value.length, ...spans.flatMap(({ start, end }) => [inside(start), inside(end)])]);
    const sorted = [...cuts].sort((a, b) => a - b);
    const ends = (at: number) => (isExact ? at : value.length);
    return sorted.slice(1).flatMap((end, index) => {
      const begin = sorted[index]!;
      const isMarked = spans.some(({ citation, ...span }) => citation.number === active && inside(span.start) <= begin && inside(span.end) >= end && span.start < to && span.end > from);
      const part = value.slice(begin, end);
      return [
        isMarked ? <mark>{part}</mark> : part,
        ...ending.filter((span) => ends(inside(span.end)) === end).map(({ citation }) => button?.(citation)),
      ];
    });
  }

  function drawn(node: Nodes): ComponentChildren {
    switch (node.type) {
      case "text":
        return leaf(node, node.value);
      case "inlineCode":
        return <code>{leaf(node, node.value)}</code>;
      case "code":
        return <pre tabIndex={0}><code>{leaf(node, node.value)}</code></pre>;
      case "heading": // the page's own outline stays what it is
        return <p><strong>{node.children.map(drawn)}</strong></p>;
      case "list":
        return h(node.ordered ? "ol" : "ul", node.ordered ? { start: node.start ?? 1 } : {}, node.children.map(drawn));
      case "link":
        if (!/^(https?|mailto):/i.test(node.url)) break;
        return <a href={node.url} rel="noreferrer noopener" target="_blank">{node.children.map(drawn)}</a>;
      case "root":
        return node.children.map(drawn);
      default:
        if (node.type in TAGS) return h(TAGS[node.type]!, {}, ...("children" in node ? (node as Parents).children.map(drawn) : []));
    }
    // What is not drawn, HTML among it, is shown as it was written.
    return "children" in node ? [...(node as Parents).children].map(drawn) : leaf(node, text.slice(...placeOf(node)));
  }
  return <div class="said written">{drawn(root)}</div>;
}

function placeOf(node: Nodes): [number, number] {
  return [node.position!.start.offset!, node.position!.end.offset!];
}
