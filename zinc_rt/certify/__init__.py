"""The ladder of sameness: does a server give the same bytes again, in company, in any state of its cache, elsewhere?"""
