"""Budgets that hold: the governor tree, and the values it speaks in."""

from kairo_team.budget import Budget as Budget
from kairo_team.budget import BudgetPolicy as BudgetPolicy
from kairo_team.budget import HaltReason as HaltReason
from kairo_team.budget import Usage as Usage
from kairo_team.contracts import ResourceConstraint as ResourceConstraint
from kairo_team.errors import ConstraintExit as ConstraintExit
from kairo_team.errors import GovernorClosed as GovernorClosed
from kairo_team.errors import HaltError as HaltError
from kairo_team.errors import InsufficientBudget as InsufficientBudget
from kairo_team.governance.constraint_chain import ConstraintChain as ConstraintChain
from kairo_team.governance.constraint_limits import CostLimit as CostLimit
from kairo_team.governance.constraint_limits import ExternalSignal as ExternalSignal
from kairo_team.governance.constraint_limits import MaxIterations as MaxIterations
from kairo_team.governance.constraint_limits import Timeout as Timeout
from kairo_team.governance.constraint_limits import TokenBudget as TokenBudget
from kairo_team.governance.constraint_limits import WarnAt as WarnAt
from kairo_team.governance.constraints import AgentState as AgentState
from kairo_team.governance.constraints import ConstraintReport as ConstraintReport
from kairo_team.governance.constraints import ResourceAction as ResourceAction
from kairo_team.governance.constraints import ResourceContext as ResourceContext
from kairo_team.governance.constraints import ResourceValidation as ResourceValidation
from kairo_team.governance.constraints import Violation as Violation
from kairo_team.governance.governor import Governor as Governor
from kairo_team.governance.governor import Reservation as Reservation
