"""What checks, stages and figures mean, in a sentence each: pages show it on hover and focus, and in a list at their end."""

from __future__ import annotations

# What two runs are compared by (`parity.common.parity.compare`, `followed`).
CHECKS = {
    "steps": "Both scripts took as many steps.",
    "sample ids": "Both runs used the same samples at every step, each once and on the replica that the batch plan names.",
    "counts": "The number of samples or tokens that each step's loss was divided by is equal.",
    "learning rate": "The learning rate of every step is equal.",
    "loss scale": "The factor of mixed precision by which the loss is multiplied is equal at every step.",
    "initial state": "All parameters, buffers and optimizer slots begin with the same bits.",
    "first-step gradients": "The gradients of the first step, tensor by tensor, relative to the largest element of each.",
    "loss curve": "The mean loss of the global batch at every step; the relative deviation must stay in its budget.",
    "gradient norm": "The norm of all gradients together at every step.",
    "parameter norm": "The norm of all parameters together after every step.",
    "update norm": "The norm of what each step changes in the parameters.",
    "final state": "Every parameter, buffer and optimizer slot after the last step, relative to its largest element.",
    "evaluation": "Loss and correct predictions over the evaluation data, after the last step.",
    "zero-gradient direction": "A tensor that the loss does not depend on is left out only while its gradient is rounding noise.",
    "gradients in float32": "Where layers compute in 16 bits, gradients of the weights must still be summed in float32.",
    "replicas equal": "All replicas of a run hold the same parameters, bit for bit, after every step.",
    "invariants": "Each run by itself did what any run must do, such as using every sample once an epoch.",
    "loss": "The mean loss of the global batch.",
    "gradients": "The gradients of a step that starts from the reference's state.",
    "update": "What the optimizer makes of a step's gradients: new parameters and slots.",
    "buffers": "State that is not trained, such as the moving averages of batch norm.",
}

# Parts of a step, in which a diagnosis looks for what differs by itself (`parity.common.record.trace`).
STAGES = {
    "inputs and targets": "The arrays that the model and the loss are given.",
    "state before the step": "Parameters, buffers and optimizer slots before the step.",
    "state before": "Parameters, buffers and optimizer slots before the step.",
    "forward": "The output of each layer.",
    "loss sum and count": "The sum of the samples' losses, and the number it is divided by.",
    "backward": "The gradient that arrives at each layer's output.",
    "each replica's own gradients": "The gradients of the parameters, before replicas exchange them.",
    "own gradient": "The gradients of the parameters, before replicas exchange them.",
    "sums over the replicas": "Loss sum and count, added over all replicas.",
    "reduced gradients": "The gradients of the global batch: after the all-reduce, divided once by the global count.",
    "reduced gradient": "The gradients of the global batch: after the all-reduce, divided once by the global count.",
    "gradients after clipping": "The gradients that the optimizer is given.",
    "clipped": "The gradients that the optimizer is given.",
    "learning rate and other scalars": "What the optimizer is given beside gradients.",
    "optimizer slots": "The optimizer's own state, such as momentum.",
    "updated parameters": "The parameters after the step.",
}

# Columns of the tables of speed and of a study.
FIGURES = {
    "Speedup": "Samples a second against one replica of the same framework.",
    "Ideal": "The speedup if nothing were lost: the number of replicas.",
    "Usually reached": "What well-tuned training reaches on this many replicas.",
    "Efficiency": "The speedup divided by the number of replicas.",
    "Serial fraction": "The share of the work that does not divide, computed from the speedup (Karp and Flatt).",
    "Samples/s": "Trained samples a second, over the steps that were timed.",
    "Left out": "The steps of a run before its step times have settled; they are not timed.",
    "exposed": "Communication that makes the step longer.",
    "hidden": "Communication that runs behind computation and costs no time.",
    "Slowest rank": "How much longer the slowest rank computes than the mean of all.",
    "final_loss": "The loss over the evaluation data after training.",
    "score": "The accuracy over the evaluation data after training.",
    "loss_area": "The mean of the training loss over all steps.",
    "curve": "The training loss at every step.",
    "steps_to_target": "Steps until the training loss reaches the target.",
    "seconds_to_target": "Seconds until the training loss reaches the target.",
    "difference": "The candidate's mean less the reference's.",
    "interval": "Where the true difference lies, with the stated error on either side.",
    "margin": "A difference up to this size does not matter; it was chosen before the study.",
    "p equivalent": "The probability of such data if the difference were as large as the margin (both one-sided tests).",
    "p different": "The probability of such data if there were no difference, corrected for all figures.",
    "by ranks": "The same two tests by ranks, which hold for any distribution.",
    "bootstrap": "The interval of the difference by resampling seeds.",
    "pairing saves": "How many times as many seeds a study without pairs would take.",
    "power": "The probability of the verdict 'equivalent' with all planned seeds, if there is no difference.",
}

MEANINGS = CHECKS | STAGES | FIGURES
