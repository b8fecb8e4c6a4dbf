"""Experiments on live models of torch: functions called otherwise, gradients put on other ways."""
