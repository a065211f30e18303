/** URL of a worker's entry file beside the caller: `.ts` in the repository, `.js` in the built package. */
export function workerUrl(name: string, importMetaUrl: string): URL {
  return new URL(`./${name}${importMetaUrl.endsWith('.ts') ? '.ts' : '.js'}`, importMetaUrl);
}
