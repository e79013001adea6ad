.PHONY: build test dependencies

dependencies:
	@Scripts/dependencies

build: dependencies
	swift build -c release --product stagepack

test: dependencies
	swift build --build-tests
	swift test --skip-build
