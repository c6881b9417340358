

def torch_step():
    torch = imported("torch")
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        failed("torch %s is built without CUDA" % torch.__version__)
    fact("torch.cuda", torch.version.cuda)
    doing("torch.cuda.is_available()")
    if not torch.cuda.is_available() or torch.cuda.device_count() == 0:
        failed("torch %s lists no GPU, though the driver has one" % torch.__version__)
    fact("torch.devices", ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())))
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(7)
    x, y = torch.randn(SAMPLES, FEATURES), torch.randn(SAMPLES, OUTPUTS)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, OUTPUTS))
    start = [value.detach().clone() for value in model.parameters()]

    def train(model, start, x, y):
        with torch.no_grad():
            for value, at_start in zip(model.parameters(), start):
                value.copy_(at_start)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return [loss.detach()] + [value.detach() for value in model.parameters()]

    wanted = [value.clone() for value in train(model.double(), start, x.double(), y.double())]
    doing("memory of the first device")
    device = torch.device("cuda:0")
    model, start, on_x, on_y = model.float().to(device), [value.to(device) for value in start], x.to(device), y.to(device)

    def step():
        values = train(model, start, on_x, on_y)
        torch.cuda.synchronize()
        return values

    for which, got in zip(("the first training step", "the last training step"), timed("torch.step", lambda: [value.clone() for value in step()])):
        if any(value.device.type != "cuda" for value in got):
            failed("%s was not made on the GPU" % which)
        offs = [float((one.cpu().double() - other).abs().max() / other.abs().max()) for one, other in zip(got, wanted)]
        for off in offs:
            judge(which, off)
    ok("torch %s with CUDA %s on %d GPU%s: a training step as on the CPU, off by %.1e" %
       (torch.__version__, torch.version.cuda, torch.cuda.device_count(), "" if torch.cuda.device_count() == 1 else "s", max(offs)))


run(torch_step)
