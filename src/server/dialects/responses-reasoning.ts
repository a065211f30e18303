/**
 * Reasoning on its way to the client and back. Clients that keep nothing on a server ask for `encrypted_content` and may send
 * back only that. Here it hides nothing: it is the text in base64, behind a mark that tells it from what other servers give.
 */

const MARK = 'plain:';

export function portableReasoning(text: string): string {
  return MARK + Buffer.from(text).toString('base64');
}

interface ReasoningItem {
  readonly content?: readonly { readonly text: string }[] | null;
  readonly summary?: readonly { readonly text: string }[] | null;
  readonly encrypted_content?: string | null;
}

/** The text of an item; empty when all it has was encrypted by somebody else. */
export function readableReasoning({ content, summary, encrypted_content: encoded }: ReasoningItem): string {
  if (content?.length) return content.map(({ text }) => text).join('');
  if (encoded?.startsWith(MARK)) return Buffer.from(encoded.slice(MARK.length), 'base64').toString();
  return (summary ?? []).map(({ text }) => text).join('\n');
}
