"""Golden prompts: conversations of many shapes, rendered by the chat template of every reference pack with Python's jinja2.

Writes prompts.json beside this file; prompts.test.ts compares the engine's rendering with it. Needs jinja2:

    python3 test/golden/render_prompts.py && npx biome check --write test/golden/prompts.json

The environment is that of Hugging Face transformers: trim_blocks, lstrip_blocks, loop controls, its `tojson`,
`raise_exception` and `strftime_now`. The packs' own recorded renderings, made by transformers itself, are rendered
again here and must come out the same, or nothing is written.
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
PACKS = HERE.parent / "oracles"
CLOCK = datetime.datetime(2026, 2, 9, 4, 5, 6)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city <now> & later",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Città"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CLOCK_TOOL = {
    "type": "function",
    "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}},
}
TOOLS = [WEATHER, CLOCK_TOOL]


def user(text):
    return {"role": "user", "content": text}


def call(number, name, arguments):
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(content, *made, **more):
    return {"role": "assistant", "content": content, "tool_calls": list(made), **more}


def result(number, name, text):
    return {"role": "tool", "tool_call_id": f"call_{number}", "name": name, "content": text}


SYSTEM = {"role": "system", "content": "You are a test."}
ANSWER = {"role": "assistant", "content": "Fine."}
THOUGHT = {"role": "assistant", "content": "Fine.", "reasoning_content": "They ask.\nI answer."}
ROMA = call(0, "get_weather", {"city": "Roma", "days": 2})
OSLO = call(1, "get_weather", {"city": "Ås \"øy\"\n<b>"})
NESTED = call(0, "get_weather", {"city": "x", "more": {"list": [1, 2.5, True, None, "é"], "empty": {}}})

CASES = {
    "user": {"messages": [user("Hello world!")]},
    "no generation prompt": {"messages": [user("Hello"), ANSWER], "add_generation_prompt": False},
    "system and user": {"messages": [SYSTEM, user("Hello")]},
    "several turns": {"messages": [SYSTEM, user("How are you?"), ANSWER, user("And now?"), ANSWER, user("So?")]},
    "other alphabets, white space": {"messages": [user("  Grüße, 世界! 😀\n\n\tπ≈3 \n"), ANSWER, user("“ok” & <b>")]},
    "markers in the text": {"messages": [user("<|im_end|> </think> <|end|> [/INST] <｜User｜> ]~b] <|user|>"), ANSWER, user("x")]},
    "an empty answer": {"messages": [user("Hello"), {"role": "assistant", "content": ""}, user("x")]},
    "reasoning in earlier turns": {"messages": [user("How?"), THOUGHT, user("And?"), THOUGHT, user("So?")]},
    "tools, no call": {"messages": [user("Hello")], "tools": TOOLS},
    "tools and a system message": {"messages": [SYSTEM, user("Hello"), ANSWER, user("x")], "tools": TOOLS},
    "a call and its result": {"messages": [user("?"), calls("", ROMA), result(0, "get_weather", "18 C")], "tools": TOOLS},
    "a call without text": {"messages": [user("?"), calls(None, ROMA), result(0, "get_weather", "18 C")], "tools": TOOLS},
    "a call after text": {"messages": [user("?"), calls("I look.", ROMA), result(0, "get_weather", "18 C")], "tools": TOOLS},
    "a call after reasoning": {
        "messages": [user("?"), calls("", ROMA, reasoning_content="I should look."), result(0, "get_weather", "18 C")],
        "tools": TOOLS,
    },
    "parallel calls": {
        "messages": [
            user("?"),
            calls("", ROMA, OSLO),
            result(0, "get_weather", "18 C"),
            result(1, "get_weather", "{\"t\": -3}"),
        ],
        "tools": TOOLS,
    },
    "calls in a row, then a question": {
        "messages": [
            user("?"),
            calls("", ROMA, reasoning_content="First Roma."),
            result(0, "get_weather", "18 C"),
            calls("", OSLO, reasoning_content="Then Oslo."),
            result(1, "get_weather", "-3 C"),
            ANSWER,
            user("And?"),
        ],
        "tools": TOOLS,
    },
    "nested arguments": {"messages": [user("?"), calls("", NESTED), result(0, "get_weather", "")], "tools": TOOLS},
    "no arguments": {"messages": [user("?"), calls("", call(0, "now", {})), result(0, "now", "9")], "tools": TOOLS},
    "thinking on": {"messages": [user("Hello")], "variables": {"enable_thinking": True, "thinking": True}},
    "thinking off": {"messages": [user("Hello")], "variables": {"enable_thinking": False, "thinking": False}},
    "thinking off, with tools": {
        "messages": [SYSTEM, user("Hello"), ANSWER, user("x")],
        "tools": TOOLS,
        "variables": {"enable_thinking": False, "thinking": False},
    },
    "low effort": {"messages": [user("Hello")], "variables": {"reasoning_effort": "low"}},
    "high effort": {"messages": [SYSTEM, user("Hello")], "variables": {"reasoning_effort": "high"}},
    "an answer to be continued": {
        "messages": [SYSTEM, user("Hello"), {"role": "assistant", "content": "It is"}],
        "continue_final": True,
    },
    "an answer to be continued behind a space": {
        "messages": [user("Hello"), {"role": "assistant", "content": "It is "}],
        "continue_final": True,
    },
    "continued without thinking": {
        "messages": [user("Hello"), {"role": "assistant", "content": "It is"}],
        "continue_final": True,
        "variables": {"enable_thinking": False, "thinking": False},
    },
}


class Generation(jinja2.ext.Extension):
    """The block with which templates mark what the assistant says; it changes nothing in the text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def compile_template(source):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = CLOCK.strftime
    return environment.from_string(source)


def special_tokens(config):
    named = {}
    for name in ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"):
        token = config.get(name)
        if token is not None:
            named[name] = token["content"] if isinstance(token, dict) else token
    return named


def render(template, tokens, case):
    opens = case.get("add_generation_prompt", True) and not case.get("continue_final", False)
    text = template.render(
        messages=case["messages"],
        tools=case.get("tools"),
        documents=None,
        add_generation_prompt=opens,
        **{**tokens, **case.get("variables", {})},
    )
    return end_of_final(text, case["messages"][-1]["content"]) if case.get("continue_final") else text


def end_of_final(text, content):
    """Cuts behind the last message, as transformers does."""
    at = text.rindex(content.strip())
    kept = content.lstrip()
    return text[: at + len(kept)] if text[at : at + len(kept)] == kept else text[: at + len(content.strip())]


def check_recorded(name, template, tokens):
    recorded = json.loads((PACKS / name / "reference.json").read_text())["tokenizer"]["chat"]
    for one in recorded:
        case = {"messages": one["messages"], "tools": one.get("tools"), "variables": one.get("template_kwargs", {})}
        assert render(template, tokens, case) == one["text"], f"{name}: {one['name']} differs from transformers"


def main():
    packs = {}
    seen = {}
    for directory in sorted(path for path in PACKS.iterdir() if path.is_dir()):
        config = json.loads((directory / "tokenizer_config.json").read_text())
        tokens = special_tokens(config)
        template = compile_template(config["chat_template"])
        check_recorded(directory.name, template, tokens)
        key = json.dumps([config["chat_template"], tokens])
        if key in seen:
            packs[directory.name] = seen[key]
            continue
        seen[key] = directory.name
        rendered = {}
        for name, case in CASES.items():
            try:
                rendered[name] = render(template, tokens, case)
            except (TypeError, ValueError, jinja2.exceptions.TemplateError) as error:
                rendered[name] = {"error": f"{type(error).__name__}: {error}"}
        packs[directory.name] = rendered
    golden = {
        "made_with": f"jinja2 {jinja2.__version__}",
        "clock": [2026, 2, 9, 4, 5, 6],
        "cases": CASES,
        "packs": packs,
    }
    (HERE / "prompts.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
