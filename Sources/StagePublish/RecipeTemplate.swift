/// A recipe to start with.
package enum RecipeTemplate {
    /// The text of the recipe, with comments for each member.
    package static let text = #"""
        // The content of one asset pack: 'stagepack package' makes an archive of it. The format is
        // that of Apple's 'ba-package', whose recipes are read as they are.
        {
          // The name of the pack: letters, digits, '.', '-' and '_'.
          "assetPackID": "my-pack",

          // When the pack is fetched. One of:
          //   "essential"  staged before the first launch after the events
          //   "prefetch"   started at the events; may end later
          //   "onDemand"   when the application asks for it:  { "onDemand": {} }
          "downloadPolicy": {
            "essential": {
              "installationEventTypes": ["firstInstallation", "subsequentUpdate"]
            }
          },

          // The files of the pack. Paths are relative to the current directory, and are the same in the
          // pack unless there is a destination.
          "fileSelectors": [
            // A directory with everything below it.
            { "directory": "assets" }

            // One file.
            // , { "file": "credits.txt" }

            // Files by a pattern: '*' and '?' within a name, '[a-z]' for one character, '**' for any
            // number of directories.
            // , { "filePattern": "images/**/*.png" }

            // Files with another path in the pack; '.' is the root of the pack.
            // , { "fileSource": "build/strings.json", "fileDestination": "strings.json" }
            // , { "directorySource": "../shared/music", "directoryDestination": "music" }

            // Files that no selector adds: a path or a pattern of sources.
            , { "fileExclusion": "**/.DS_Store" }
          ],

          // The platforms that the pack is for. Here for Apple's tools.
          "platforms": []

          // The language of the content.
          // , "language": "en"

          // The directory that paths are relative to, instead of the current one.
          // , "sourceRoot": "content"

          // Data for the application, which the manifest contains.
          // , "userInfo": { "title": "My Pack" }
        }

        """#
}
