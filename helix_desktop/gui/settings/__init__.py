"""The settings: pages made from the declarations of the program, of the policy and of a workspace."""
