"""transformers, made to compute in fp64 throughout: import this before any of its models.

Its norms, RoPE and losses compute in fp32 whatever the model is. Here "fp32" is fp64, and every such cast follows.
"""
import torch
import transformers

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)


def random_model(config, generator, deviation):
    """No weight is zero or one: everything matters."""
    # Its grouped matmul has no fp64.
    experts = {"experts_implementation": "eager"} if hasattr(config, "num_experts_per_tok") else {}
    attention = "eager" if hasattr(config, "attn_logit_softcapping") else "sdpa"  # which has no caps
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention, **experts).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            around = 1.0 if parameter.dim() == 1 and parameter.mean() == 1 else 0.0
            parameter.copy_(around + deviation * torch.randn(parameter.shape, generator=generator))
    return model
