"""The providers and model servers that need no address from the user."""

from helix_desktop.protocols.anthropic import anthropic_client
from helix_desktop.protocols.gemini import gemini_client
from helix_desktop.protocols.openai_chat import chat_client
from helix_desktop.protocols.openai_responses import responses_client
from helix_desktop.providers.demo_model import DEMO
from helix_desktop.providers.known_provider import KnownProvider

_CHAT = chat_client.KIND

SERVICES = (
    KnownProvider(
        "openai", "OpenAI", responses_client.KIND, "https://api.openai.com/v1", "OPENAI_API_KEY"
    ),
    KnownProvider(
        "anthropic",
        "Anthropic",
        anthropic_client.KIND,
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
    ),
    KnownProvider(
        "gemini",
        "Google Gemini",
        gemini_client.KIND,
        "https://generativelanguage.googleapis.com",
        "GEMINI_API_KEY",
    ),
    KnownProvider(
        "openrouter", "OpenRouter", _CHAT, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"
    ),
    KnownProvider("deepseek", "DeepSeek", _CHAT, "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    KnownProvider("mistral", "Mistral", _CHAT, "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    KnownProvider("xai", "xAI", _CHAT, "https://api.x.ai/v1", "XAI_API_KEY"),
    KnownProvider("groq", "Groq", _CHAT, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    KnownProvider(
        "moonshot", "Moonshot AI (Kimi)", _CHAT, "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"
    ),
    KnownProvider(
        "dashscope",
        "Alibaba Cloud (Qwen)",
        _CHAT,
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
    ),
    KnownProvider("cerebras", "Cerebras", _CHAT, "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    KnownProvider(
        "fireworks",
        "Fireworks AI",
        _CHAT,
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
    ),
    # It passes requests on to many providers of open models, which one token pays.
    KnownProvider(
        "huggingface", "Hugging Face", _CHAT, "https://router.huggingface.co/v1", "HF_TOKEN"
    ),
)

# Each with the port on which it listens unless its user says otherwise. A llamafile has
# the port of llama.cpp.
LOCAL_SERVERS = (
    KnownProvider("ollama", "Ollama", _CHAT, "http://127.0.0.1:11434/v1"),
    KnownProvider("lmstudio", "LM Studio", _CHAT, "http://127.0.0.1:1234/v1"),
    KnownProvider("llamacpp", "llama.cpp", _CHAT, "http://127.0.0.1:8080/v1"),
    KnownProvider("vllm", "vLLM", _CHAT, "http://127.0.0.1:8000/v1"),
    KnownProvider("jan", "Jan", _CHAT, "http://127.0.0.1:1337/v1"),
    KnownProvider("koboldcpp", "KoboldCpp", _CHAT, "http://127.0.0.1:5001/v1"),
)

# The title of the demonstration is a sentence that the window translates.
KNOWN_PROVIDERS = (*SERVICES, *LOCAL_SERVERS, KnownProvider(DEMO, DEMO, DEMO))
