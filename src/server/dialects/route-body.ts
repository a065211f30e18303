/** Bodies that are parsed before the handler runs, by the rules and in the words of their dialect. */

/** For a route's `validatorCompiler`: what `parse` returns becomes request.body, and what it throws the answer. */
export function bodyParser(parse: (body: unknown) => unknown) {
  return () => (body: unknown) => {
    try {
      return { value: parse(body) };
    } catch (error) {
      return { error: error as Error };
    }
  };
}
