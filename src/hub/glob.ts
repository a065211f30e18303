/** `*` stands for any characters, slashes included, `?` for one: the patterns of other tools of the hub. */

/** Takes at most pattern × text steps whatever the pattern, because only the last star is ever tried again. */
export function matchesGlob(pattern: string, text: string): boolean {
  let p = 0;
  let t = 0;
  let star = -1;
  let starText = 0;
  while (t < text.length) {
    if (p < pattern.length && pattern[p] === '*') {
      star = p++;
      starText = t;
    } else if (p < pattern.length && (pattern[p] === '?' || pattern[p] === text[t])) {
      p++;
      t++;
    } else if (star >= 0) {
      p = star + 1;
      t = ++starText;
    } else return false;
  }
  while (pattern[p] === '*') p++;
  return p === pattern.length;
}
