/** Shapes that several routes share. */

import * as z from 'zod';

export const ErrorReply = z
  .object({
    error: z.object({
      message: z.string(),
      type: z.string(),
      param: z.string().nullable(),
      code: z.string().nullable(),
    }),
  })
  .describe('What is wrong, and what to try next')
  .meta({ id: 'Error' });

/** Errors that every route may answer with: a wrong request, no key, a foreign page. */
export const commonErrors = { 400: ErrorReply, 401: ErrorReply, 403: ErrorReply };

/** And those of routes that need the model. */
export const modelErrors = { ...commonErrors, 500: ErrorReply, 503: ErrorReply };

/** And those of routes that wait in the queue. */
export const turnErrors = { ...modelErrors, 404: ErrorReply, 413: ErrorReply, 415: ErrorReply, 429: ErrorReply };
