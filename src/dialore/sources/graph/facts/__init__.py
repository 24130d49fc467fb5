"""What a fact says: relations and their wording, and files of facts as they are read."""
