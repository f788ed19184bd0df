// The AI SDK's own judgement: reads a JSON list of transcripts (lists of messages) and prints, for each, what its
// validator and its conversion to model messages say. Usage: node validate.mjs < transcripts.json
import { readFileSync } from "node:fs";
import { convertToModelMessages, safeValidateUIMessages } from "ai";

const transcripts = JSON.parse(readFileSync(0, "utf8"));
const judged = [];
for (const messages of transcripts) {
  const validated = await safeValidateUIMessages({ messages });
  if (!validated.success) judged.push({ error: String(validated.error) });
  else judged.push({ messages: validated.data, modelMessages: await convertToModelMessages(validated.data) });
}
console.log(JSON.stringify(judged));
