// Ask a service by OpenAI's package for Node: `node ask.mjs '{"url", "key", "model", "question", "stream"}'`.
import OpenAI from "openai";

const { url, key, model, question, stream } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: url, apiKey: key, maxRetries: 0 });
const body = { model, messages: [{ role: "user", content: question }] };
let said;
try {
  if (stream) {
    const pieces = [];
    let usage, grounding;
    for await (const chunk of await client.chat.completions.create({
      ...body,
      stream: true,
      stream_options: { include_usage: true },
    })) {
      if (chunk.choices[0]?.delta?.content) pieces.push(chunk.choices[0].delta.content);
      usage = chunk.usage ?? usage;
      grounding = chunk.grounding ?? grounding;
    }
    said = { pieces, tokens: usage.total_tokens, citations: grounding.citations.length };
  } else {
    const made = await client.chat.completions.create(body);
    const { content, grounding } = made.choices[0].message;
    said = { pieces: [content], tokens: made.usage.total_tokens, citations: grounding.citations.length };
  }
} catch (error) {
  if (!(error instanceof OpenAI.APIError)) throw error;
  said = { status: error.status, message: error.message };
}
console.log(JSON.stringify(said));
