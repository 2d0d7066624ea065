// Talking to the server. Every address is relative to the page's own, which carries the token.

/** What a user can mend: the message is the library's, `field` says where; null: nowhere special. */
export class Refused extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

const GONE = "The playground does not answer: it has ended. Start `anyorder play` again and open "
  + "the address that it prints.";

async function send(path, options) {
  let answer;
  try {
    answer = await fetch(`api/${path}`, options);
  } catch (error) {
    throw new Refused(GONE, null);
  }
  if (!answer.ok) throw new Refused(`${answer.status}: ${await answer.text()}`, null);
  if (answer.headers.get("Content-Type").startsWith("text/event-stream")) return answer.body;
  const said = await answer.json();
  if (said.refused) throw new Refused(said.refused.message, said.refused.field);
  return said;
}

function post(path, body) {
  return send(path, { method: "POST", body: JSON.stringify(body) });
}

/** {models, chosen}: what can be chosen, and what to begin with. */
export const models = () => send("models");

export const describe = (model) => post("form", { model });

export const stop = (tab) => post("stop", { tab });

/** The events of a generation, as [kind, what it says]. */
export async function* generate(asked) {
  const body = await post("generate", asked);
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let read;
    try {
      read = await reader.read();
    } catch (error) {
      throw new Refused(GONE, null);
    }
    if (read.done) return;
    const parts = (rest + read.value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) yield parsed(part);
  }
}

function parsed(event) {
  const lines = Object.fromEntries(event.split("\n").map((line) => {
    const colon = line.indexOf(": ");
    return [line.slice(0, colon), line.slice(colon + 2)];
  }));
  return [lines.event, JSON.parse(lines.data)];
}
