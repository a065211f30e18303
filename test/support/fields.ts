/** Wrong values for fields of request bodies, as JSON text: some of them JavaScript cannot write. */

export const WRONG: readonly string[] = [
  'null',
  '""',
  '"x"',
  '"0.7"',
  '-1',
  '0.5',
  '1e400',
  '-1e400',
  '9007199254740993',
  '[]',
  '[[]]',
  '["x", 1]',
  '{}',
  '{"a": {"b": []}}',
  'true',
  'false',
  '"\\u0000"',
  '"\\ud800"',
  '{"__proto__": 1}',
];

type Path = readonly (string | number)[];

/** Every place of a JSON value that holds something, itself apart. */
export function placesOf(value: unknown, at: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.keys(value).flatMap(key => {
    const path = [...at, Array.isArray(value) ? Number(key) : key];
    return [path, ...placesOf((value as Record<string, unknown>)[key], path)];
  });
}

/** JSON text of `value` with the text `json` at one place. */
export function withJson(value: unknown, path: Path, json: string): string {
  const MARK = '@@here@@';
  const copy = structuredClone(value);
  let at = copy as Record<string | number, unknown>;
  for (const step of path.slice(0, -1)) at = at[step] as Record<string | number, unknown>;
  at[path.at(-1)!] = MARK;
  return JSON.stringify(copy).replace(JSON.stringify(MARK), () => json);
}
