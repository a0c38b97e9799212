"""The settings: pages made from the declarations of the program, the policy and a workspace."""
