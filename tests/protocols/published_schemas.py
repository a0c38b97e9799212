"""What a request may hold, as the providers' own libraries publish it, and what a fold does to it.

Taken from PyPI on 26 November 2026: anthropic 2.14.0 (its beta types, which include the others),
openai 3.57.0 and google-genai 3.6.1, and from npm on 29 November 2026: @anthropic-ai/sdk 1.14.0, openai 7.59.0 and @google/genai
3.3.0, whose types published_types.json has as deep as they go. When a library has something new, it goes on unfolded until it
stands here.

`FOLDED`: history, for which a fold's text stands; it is recorded and can be recalled. `CARRIED`: state of what
follows, which goes on where it stood. `FORM`: ids, states, signatures, and in which form a part is wanted: it goes
with its message, and nothing stands for it. Fields of the body all stay as they are, but for the list of messages.
"""

from __future__ import annotations

FOLDED = "folded"
CARRIED = "carried"
FORM = "form"

# Content blocks of Messages.
ANTHROPIC_BLOCKS = {
    "advisor_tool_result": FOLDED,
    "bash_code_execution_tool_result": FOLDED,
    "code_execution_tool_result": FOLDED,
    "compaction": CARRIED,  # The provider's own summary of what was before.
    "container_upload": CARRIED,  # A file that later code finds in its container.
    "document": FOLDED,
    "fallback": FOLDED,  # A boundary between two parts of one reply.
    "image": FOLDED,
    "mcp_tool_listing": CARRIED,
    "mcp_tool_result": FOLDED,
    "mcp_tool_use": FOLDED,
    "redacted_thinking": FOLDED,
    "search_result": FOLDED,
    "server_tool_use": FOLDED,
    "text": FOLDED,
    "text_editor_code_execution_tool_result": FOLDED,
    "thinking": FOLDED,
    "tool_addition": CARRIED,
    "tool_removal": CARRIED,
    "tool_result": FOLDED,
    "tool_search_tool_result": CARRIED,  # The tools that a search of the provider loaded.
    "tool_use": FOLDED,
    "web_fetch_tool_result": FOLDED,
    "web_search_tool_result": FOLDED,
}
ANTHROPIC_RESULT_PARTS = {
    "browser_state": FOLDED,
    "document": FOLDED,
    "image": FOLDED,
    "search_result": FOLDED,
    "text": FOLDED,
    "tool_reference": CARRIED,  # The tools that a search of the agent loaded.
}
# Roles of Messages, with the fields of their messages.
ANTHROPIC_ROLES = {
    "user": ("content", "role"),
    "assistant": ("content", "role"),
    "system": ("clear_at", "content", "output_config", "role"),
}
ANTHROPIC_BODY = [
    "betas",
    "billing_policy",
    "cache_control",
    "compaction",
    "container",
    "context_management",
    "diagnostics",
    "fallback_credit_token",
    "fallbacks",
    "inference_geo",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "output_format",  # The older name of what `output_config` has.
    "service_tier",
    "speed",
    "stop_sequences",
    "system",
    "thinking",
    "thread",
    "tool_choice",
    "tools",
    "user_profile_id",
    "workspace_id",
    "stream",
    "temperature",
    "top_k",
    "top_p",
]

# Items of Responses.
RESPONSES_ITEMS = {
    "additional_tools": CARRIED,
    "apply_patch_call": FOLDED,
    "apply_patch_call_output": FOLDED,
    "code_interpreter_call": FOLDED,
    "compaction": CARRIED,  # The provider's own summary, which only it can read.
    "compaction_trigger": CARRIED,
    "computer_call": FOLDED,
    "computer_call_output": FOLDED,
    "configuration_update": CARRIED,
    "custom_tool_call": FOLDED,
    "custom_tool_call_output": FOLDED,
    "file_search_call": FOLDED,
    "function_call": FOLDED,
    "function_call_output": FOLDED,
    "image_generation_call": FOLDED,
    "item_reference": CARRIED,  # Something that the provider stores: nobody here knows what.
    "local_shell_call": FOLDED,
    "local_shell_call_output": FOLDED,
    "mcp_approval_request": FOLDED,
    "mcp_approval_response": FOLDED,
    "mcp_call": FOLDED,
    "mcp_list_tools": CARRIED,
    "message": FOLDED,
    "program": FOLDED,
    "program_output": FOLDED,
    "reasoning": FOLDED,
    "shell_call": FOLDED,
    "shell_call_output": FOLDED,
    "tool_search_call": CARRIED,
    "tool_search_output": CARRIED,  # The tools that a search loaded.
    "web_search_call": FOLDED,
}
RESPONSES_PARTS = dict.fromkeys(
    ("input_text", "input_image", "input_file", "output_text", "refusal"), FOLDED
)
RESPONSES_BODY = [
    "access_programs",
    "background",
    "background_options",
    "context_management",
    "conversation",
    "image",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
]

# Roles of Chat Completions. The system's are carried, wherever they stand behind others.
CHAT_ROLES = {
    "assistant": FOLDED,
    "developer": CARRIED,
    "function": FOLDED,
    "system": CARRIED,
    "tool": FOLDED,
    "user": FOLDED,
}
CHAT_PARTS = dict.fromkeys(("text", "image_url", "input_audio", "file", "refusal"), FOLDED)
CHAT_ASSISTANT_FIELDS = ("audio", "content", "function_call", "name", "refusal", "role", "tool_calls")  # fmt: skip
CHAT_BODY = [
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
]

# Parts of Gemini's contents, by the field that says what they are. The others describe it.
GEMINI_PARTS = dict.fromkeys(
    [
        "codeExecutionResult",
        "executableCode",
        "fileData",
        "functionCall",
        "functionResponse",
        "inlineData",
        "text",
        "toolCall",
        "toolResponse",
    ],
    FOLDED,
)
GEMINI_PART_DETAILS = [
    "mediaResolution",
    "thought",
    "thoughtSignature",
    "videoMetadata",
    "partMetadata",
    "audioTranscription",
    "mediaProcessing",
    "speechMetadata",
    "documentMetadata",
    "spreadsheetMetadata",
    "audioMetadata",
]
GEMINI_BODY = [
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "safetySettings",
    "generationConfig",
    "cachedContent",
    "labels",
]

# Deeper inside than decided_fields.json goes: form, for which nothing stands.
# That is how the provider looks at a picture or is to cache it, and what signs or describes a part.
FORM_INSIDE: dict[str, frozenset[str]] = {
    # It is recorded whether a call has failed.
    "anthropic": frozenset({"tool_result.is_error"}),
    "openai-chat": frozenset(
        {"image_url.prompt_cache_breakpoint", "ChatCompletionContentPartImage.ImageURL.detail"}
    ),
    "openai-responses": frozenset(
        {
            # Beside a screenshot, which is recorded itself.
            "computer_call_output.acknowledged_safety_checks",
            "computer_call_output.call_id",
            "computer_call_output.id",
            "computer_call_output.status",
            "input_image.detail",
            "input_image.prompt_cache_breakpoint",
            "output_text.annotations",
            "output_text.logprobs",
        }
    ),
    "gemini": frozenset(
        {
            "Part.mediaProcessing",
            "Part.partMetadata",
            "Part.speechMetadata",
            "Part.thought",
            "Part.thoughtSignature",
            "FunctionResponsePart.mediaProcessing",
            # The names of pictures, which are recorded themselves.
            "FunctionResponseBlob.displayName",
            "FunctionResponseFileData.displayName",
            "inlineData.displayName",
        }
    ),
}
