/** Constructs of Oniguruma that the library turns into something else in JavaScript, which would give other pieces. */

/** Escapes with a meaning of their own in Oniguruma: anchors, references, calls, classes that JavaScript lacks. */
const ESCAPES = /[GKRXyYkgMC1-9]/;
/** What may follow `(?`; the library translates or keeps these exactly. */
const GROUP = /^\(\?(?:[:=!]|<[=!]|<[A-Za-z_]|i:)/;

/**
 * The first part of `regex` that would not mean the same after translation, as words for a message, or null: atomic groups,
 * possessive quantifiers, inline options but `(?i:`, comments, conditions, back-references, subexpression calls, `\G`, `\K`,
 * `\R`, `\X`.
 */
export function inexactRegexConstruct(regex: string): string | null {
  let depth = 0;
  for (let i = 0; i < regex.length; i++) {
    const character = regex[i];
    if (character === '\\') {
      const next = regex[i + 1] ?? '';
      if (depth === 0 && ESCAPES.test(next)) return `the escape \\${next}`;
      i++;
    } else if (depth > 0 || character === '[') {
      if (character === '[') depth++;
      // A bracket right after the opening one is a character of the class.
      if (character === '[' && regex[i + 1] === '^') i++;
      if (character === '[' && regex[i + 1] === ']') i++;
      if (character === ']') depth--;
    } else if (character === '(' && regex[i + 1] === '?' && !GROUP.test(regex.slice(i, i + 5))) {
      const what = regex[i + 2] === '>' ? 'the atomic group' : 'the group';
      return `${what} ${JSON.stringify(regex.slice(i, i + 3))}`;
    } else if (character === '+' && '+*?'.includes(regex[i - 1] ?? ' ') && !escaped(regex, i - 1)) {
      return `the possessive quantifier ${JSON.stringify(regex.slice(i - 1, i + 1))}`;
    }
  }
  return null;
}

function escaped(regex: string, position: number): boolean {
  let backslashes = 0;
  while (regex[position - 1 - backslashes] === '\\') backslashes++;
  return backslashes % 2 === 1;
}
