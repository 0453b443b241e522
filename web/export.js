/* Conversations as files, and back. Pure. */

import { checkConversation, contentOf, shownPath } from "./conversation.js";

const FORMAT = "mica conversations";

/** The shown path as Markdown. */
export function toMarkdown(talk) {
    const parts = [`# ${talk.title || "Conversation"}`];
    if (talk.system.trim()) parts.push(`> ${talk.system.trim().replace(/\n/g, "\n> ")}`);
    for (const node of shownPath(talk)) {
        parts.push(node.role === "user" ? "## You" : "## Answer");
        if (node.thinking)
            parts.push(`<details><summary>Thoughts</summary>\n\n${node.thinking.trim()}\n\n</details>`);
        const content = contentOf(node).trim();
        if (content) parts.push(content);
        if (node.state !== "done") parts.push(`*(${node.error?.message ?? node.state})*`);
    }
    return `${parts.join("\n\n")}\n`;
}

/** One or more whole conversations, with every branch, as JSON. */
export function toJson(talks, now = Date.now()) {
    const value = { format: FORMAT, saved: new Date(now).toISOString(), conversations: talks };
    return `${JSON.stringify(value, null, 1)}\n`;
}

/** The conversations of such a file; throws an Error with a sentence when it is none. */
export function fromJson(text) {
    let value;
    try {
        value = JSON.parse(text);
    } catch {
        throw new Error("this file is no JSON");
    }
    if (value?.format !== FORMAT || !Array.isArray(value.conversations)) {
        throw new Error("this file holds no conversations of this page");
    }
    return value.conversations.map(checkConversation);
}

/** A file name of a title: letters, digits and single dashes. */
export function fileName(title, extension) {
    const plain = title
        .normalize("NFKD")
        .replace(/[^\p{L}\p{N}]+/gu, "-")
        .replace(/^-|-$/g, "");
    return `${plain.slice(0, 60) || "conversation"}.${extension}`;
}
