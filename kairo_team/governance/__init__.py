"""Budgets that hold: the governor tree, and the values it speaks in."""

from kairo_team.budget import Budget as Budget
from kairo_team.budget import BudgetPolicy as BudgetPolicy
from kairo_team.budget import HaltReason as HaltReason
from kairo_team.budget import Usage as Usage
from kairo_team.errors import GovernorClosed as GovernorClosed
from kairo_team.errors import HaltError as HaltError
from kairo_team.errors import InsufficientBudget as InsufficientBudget
from kairo_team.governance.governor import Governor as Governor
from kairo_team.governance.governor import Reservation as Reservation
